"""Plan the renewal of a CA and a serving certificate, and carry the plan out in memory.

A rotated CA stays in the bundle after the new one, so that clients trust replicas that still serve the old certificate. For
the same reason, publish the bundle first and the serving pair after it.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from gpugate.certs.inspect import (
    CertificateError,
    CertificateInfo,
    CertificateState,
    dump_certificates,
    is_ca,
    load_certificates,
    parse,
    timestamp,
    validity,
)
from gpugate.certs.issue import DEFAULT_LIFETIMES, KeyPair, Lifetimes, issue_ca, issue_serving
from gpugate.certs.names import normalize
from gpugate.certs.verify import check_key, verify

#: Most retired CAs that stay trusted.
RETIRED_KEPT: Final = 2
_CA: Final = "CA certificate"


class Action(StrEnum):
    """Action of a plan; rotating the CA includes a new serving certificate."""

    KEEP = "keep"
    ISSUE_SERVING = "issue-serving"
    ROTATE_CA = "rotate-ca"


class RenewalPlan(NamedTuple):
    """The action, and its reason as a clause."""

    action: Action
    reason: str


class Held(NamedTuple):
    """The stored pairs; None for a certificate without a key or the reverse.

    `ca.certificate_pem` is the bundle: the signing CA, then retired ones.
    """

    ca: KeyPair | None = None
    serving: KeyPair | None = None


class Material(NamedTuple):
    """A CA with its bundle, and a serving pair signed by it."""

    ca: KeyPair
    serving: KeyPair


def plan(
    now: datetime, ca: KeyPair | None, serving: KeyPair | None, hostnames: Sequence[str], *, force: bool = False
) -> RenewalPlan:
    """Plan what `ca` and `serving` need at `now` to serve `hostnames`.

    The CA is checked first, since a new CA needs a new serving certificate. Only the first certificate of `ca` counts: those
    after it are retired. `force` requests a new serving certificate if nothing else does.

    Raises:
        CertificateError: an input is damaged or a host name is unusable.
    """
    names = normalize(hostnames)
    fault = "there is no CA" if ca is None else _ca_fault(ca, now)
    if ca is None or fault:
        return RenewalPlan(Action.ROTATE_CA, fault)
    if serving is None:
        return RenewalPlan(Action.ISSUE_SERVING, "there is no serving certificate with its key")
    fault = _serving_fault(serving, ca, names, now) or ("a new serving certificate was requested" if force else "")
    if fault:
        return RenewalPlan(Action.ISSUE_SERVING, fault)
    end = timestamp(parse(serving.certificate_pem)[0].not_after)
    return RenewalPlan(Action.KEEP, f"the serving certificate is good until {end}")


def _ca_fault(ca: KeyPair, now: datetime) -> str:
    """Return why the CA must be rotated; empty when it need not be."""
    info = parse(ca.certificate_pem, _CA)[0]
    if not info.is_ca:
        return "the CA certificate is not a CA's"
    for problem in check_key("CA", ca.certificate_pem, ca.key_pem):
        return problem.message
    if validity(info, now).state is CertificateState.NOT_YET:
        return f"the CA certificate begins only at {timestamp(info.not_before)}"
    return _ageing("CA", info, now)


def _serving_fault(serving: KeyPair, ca: KeyPair, hostnames: Sequence[str], now: datetime) -> str:
    """Return why the serving certificate must be replaced; empty if it is valid."""
    # A pair signed by a retired CA must be replaced.
    signer = dump_certificates(load_certificates(ca.certificate_pem, _CA)[:1])
    problems = verify(serving.certificate_pem, signer, hostnames, now, key_pem=serving.key_pem)
    if problems:
        return ", and ".join(problem.message for problem in problems)
    return _ageing("serving", parse(serving.certificate_pem, "serving certificate")[0], now)


def _ageing(role: str, info: CertificateInfo, now: datetime) -> str:
    state, end = validity(info, now).state, timestamp(info.not_after)
    if state is CertificateState.EXPIRED:
        return f"the {role} certificate ended at {end}"
    return f"a third or less of the {role} certificate's life is left, to {end}" if state is CertificateState.RENEW else ""


def carry_out(
    plan: RenewalPlan, held: Held, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES
) -> Material:
    """Issue what the plan, made from `held` at `now`, requires; keep the rest.

    Raises:
        CertificateError: the plan relies on missing pairs, or as `issue_ca` and `issue_serving` do.
    """
    if plan.action is Action.ROTATE_CA:
        ca = _rotate(held.ca, now, lifetimes)
        return Material(ca, issue_serving(ca, hostnames, now, lifetimes))
    if held.ca is None:
        raise CertificateError(place="plan", problem="relies on a CA that is not held", remedy="plan again")
    if plan.action is Action.ISSUE_SERVING:
        return Material(held.ca, issue_serving(held.ca, hostnames, now, lifetimes))
    if held.serving is None:
        raise CertificateError(place="plan", problem="keeps a serving certificate that is not held", remedy="plan again")
    return Material(held.ca, held.serving)


def trust_bundle(ca_pem: bytes, now: datetime, place: object = "CA bundle") -> bytes:
    """Return the unexpired CAs of a bundle at `now`, as PEM.

    Comments and stray private keys are dropped, so that the result can be published.

    Raises:
        CertificateError: naming `place`, if none is left or one is damaged.
    """
    alive = [ca for ca in load_certificates(ca_pem, place) if now <= ca.not_valid_after_utc]
    if not alive:
        raise CertificateError(place=place, problem="holds no unexpired certificate", remedy="run 'gpugate certs issue'")
    return dump_certificates(alive)


def _rotate(old: KeyPair | None, now: datetime, lifetimes: Lifetimes) -> KeyPair:
    new = issue_ca(now, lifetimes)
    bundle = () if old is None else load_certificates(old.certificate_pem, _CA)
    # The CA that signed until now stays even if it has ended by this clock: the clock may be wrong, and replicas serve what it
    # signed. `trust_bundle` publishes it only within its time.
    retired = [ca for place, ca in enumerate(bundle) if is_ca(ca) and (place == 0 or now <= ca.not_valid_after_utc)]
    return KeyPair(new.certificate_pem + dump_certificates(retired[:RETIRED_KEPT]), new.key_pem)
