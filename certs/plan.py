"""Decide what is to be done about a CA and a serving certificate, and do not do it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpugate.certs.inspect import CertificateState, parse, timestamp, validity
from gpugate.certs.issue import KeyPair
from gpugate.certs.names import normalize
from gpugate.certs.pem import dump_certificates, load_certificates
from gpugate.certs.verify import check_key, verify


class Action(StrEnum):
    """What to do; rotating the CA includes issuing the serving certificate anew."""

    KEEP = "keep"
    ISSUE_SERVING = "issue-serving"
    ROTATE_CA = "rotate-ca"


@dataclass(frozen=True, slots=True)
class RenewalPlan:
    """The action, and the reason for it as a clause for people."""

    action: Action
    reason: str


def plan(
    now: datetime,
    ca: KeyPair | None,
    serving: KeyPair | None,
    hostnames: Sequence[str],
    *,
    force: bool = False,
) -> RenewalPlan:
    """Say what `ca` and `serving` need at `now` so that `hostnames` can be served.

    The CA is judged first, since a new one needs a new serving certificate anyhow.
    Only the first certificate of `ca` counts: those behind it are retired. `force`
    asks for a new serving certificate when nothing else calls for one.

    Raises:
        CertificateError: When material is damaged or a host name is unusable.
    """
    names = normalize(hostnames)
    fault = "there is no CA" if ca is None else _ca_fault(ca, now)
    if ca is None or fault:
        return RenewalPlan(Action.ROTATE_CA, fault)
    if serving is None:
        return RenewalPlan(Action.ISSUE_SERVING, "there is no serving certificate with its key")
    fault = _serving_fault(serving, ca, names, now)
    if fault:
        return RenewalPlan(Action.ISSUE_SERVING, fault)
    if force:
        return RenewalPlan(Action.ISSUE_SERVING, "a new serving certificate was asked for")
    end = timestamp(parse(serving.certificate_pem)[0].not_after)
    return RenewalPlan(Action.KEEP, f"the serving certificate is good until {end}")


def _ca_fault(ca: KeyPair, now: datetime) -> str:
    """Return why the CA must be rotated; empty when it need not be."""
    info = parse(ca.certificate_pem, "CA certificate")[0]
    if not info.is_ca:
        return "the CA certificate is not a CA's"
    for problem in check_key("CA", ca.certificate_pem, ca.key_pem):
        return problem.message
    state = validity(info, now).state
    if state is CertificateState.NOT_YET:
        return f"the CA certificate begins only at {timestamp(info.not_before)}"
    return _ageing("CA", state, info.not_after)


def _serving_fault(serving: KeyPair, ca: KeyPair, hostnames: Sequence[str], now: datetime) -> str:
    """Return why the serving certificate must be issued anew; empty when it is good."""
    # A pair still signed by a retired CA must move on to the one that signs now.
    bundle = load_certificates(ca.certificate_pem, "CA certificate")
    signer = dump_certificates(bundle[:1])
    problems = verify(serving.certificate_pem, signer, hostnames, now, key_pem=serving.key_pem)
    if problems:
        return ", and ".join(problem.message for problem in problems)
    info = parse(serving.certificate_pem, "serving certificate")[0]
    return _ageing("serving", validity(info, now).state, info.not_after)


def _ageing(role: str, state: CertificateState, not_after: datetime) -> str:
    if state is CertificateState.EXPIRED:
        return f"the {role} certificate ended at {timestamp(not_after)}"
    if state is CertificateState.RENEW:
        end = timestamp(not_after)
        return f"a third or less of the {role} certificate's life is left, to {end}"
    return ""
