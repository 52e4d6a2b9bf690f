"""Carry out a renewal plan in memory.

A rotated CA stays in the bundle after the new one, so that clients trust replicas that still serve the old certificate. For
the same reason, publish the bundle first and the serving pair after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpugate.certs.errors import CertificateError
from gpugate.certs.issue import DEFAULT_LIFETIMES, KeyPair, Lifetimes, issue_ca, issue_serving
from gpugate.certs.pem import dump_certificates, is_ca, load_certificates
from gpugate.certs.plan import Action, RenewalPlan

RETIRED_KEPT: Final = 2
"""Most retired CAs that stay trusted."""


@dataclass(frozen=True, slots=True)
class Held:
    """The existing material; None for a certificate without a key or the reverse.

    `ca.certificate_pem` is the bundle: the signing CA, then retired ones.
    """

    ca: KeyPair | None = None
    serving: KeyPair | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """A CA with its bundle, and a serving pair signed by it."""

    ca: KeyPair
    serving: KeyPair


def carry_out(
    plan: RenewalPlan, held: Held, hostnames: Sequence[str], now: datetime, lifetimes: Lifetimes = DEFAULT_LIFETIMES
) -> Material:
    """Issue what the plan, made from `held` at `now`, requires; keep the rest.

    Raises:
        CertificateError: the plan relies on missing material, or as `issue_ca` and `issue_serving` do.
    """
    if plan.action is Action.ROTATE_CA:
        ca = _rotate(held.ca, now, lifetimes)
        return Material(ca, issue_serving(ca, hostnames, now, lifetimes))
    if held.ca is None:
        raise CertificateError(place="plan", problem="relies on a CA that is not held", remedy="plan again")
    if plan.action is Action.ISSUE_SERVING:
        serving = issue_serving(held.ca, hostnames, now, lifetimes)
        return Material(held.ca, serving)
    if held.serving is None:
        raise CertificateError(place="plan", problem="keeps a serving certificate that is not held", remedy="plan again")
    return Material(held.ca, held.serving)


def trust_bundle(ca_pem: bytes, now: datetime, place: object = "CA bundle") -> bytes:
    """Return the unexpired CAs of a bundle at `now`, as PEM.

    Comments and stray private keys are dropped, so that the result can be published.

    Raises:
        CertificateError: naming `place`, if none is left or one is damaged.
    """
    certificates = load_certificates(ca_pem, place)
    alive = tuple(ca for ca in certificates if now <= ca.not_valid_after_utc)
    if not alive:
        raise CertificateError(place=place, problem="holds no unexpired certificate", remedy="run 'gpugate certs issue'")
    return dump_certificates(alive)


def _rotate(old: KeyPair | None, now: datetime, lifetimes: Lifetimes) -> KeyPair:
    new = issue_ca(now, lifetimes)
    if old is None:
        return new
    retired = tuple(
        ca for ca in load_certificates(old.certificate_pem, "CA certificate") if is_ca(ca) and now <= ca.not_valid_after_utc
    )
    bundle = new.certificate_pem + dump_certificates(retired[:RETIRED_KEPT])
    return KeyPair(bundle, new.key_pem)
