"""Plan the renewal of a CA and a serving certificate."""

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
    """Action of a plan; rotating the CA includes a new serving certificate."""

    KEEP = "keep"
    ISSUE_SERVING = "issue-serving"
    ROTATE_CA = "rotate-ca"


@dataclass(frozen=True, slots=True)
class RenewalPlan:
    """The action, and its reason as a clause."""

    action: Action
    reason: str


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
    fault = _serving_fault(serving, ca, names, now)
    if fault:
        return RenewalPlan(Action.ISSUE_SERVING, fault)
    if force:
        return RenewalPlan(Action.ISSUE_SERVING, "a new serving certificate was requested")
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
    """Return why the serving certificate must be replaced; empty if it is valid."""
    # A pair signed by a retired CA must be replaced.
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
