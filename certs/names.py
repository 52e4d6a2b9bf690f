"""Host names and IP addresses: validation, and coverage by a certificate."""

import ipaddress
import re
from collections.abc import Iterable, Sequence

from cryptography import x509

from gpugate.certs.inspect import CertificateError

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_DNS_MAX_LENGTH = 253


def normalize(hostnames: Sequence[str]) -> tuple[str, ...]:
    """Return the names in lower case, addresses in canonical form, each one once.

    A name is a DNS name (RFC 1123, a leading `*.` allowed) or an IP address without a scope.

    Raises:
        CertificateError: a name is neither, or there is none.
    """
    if isinstance(hostnames, str):  # A str is a Sequence[str]: its letters.
        hostnames = (hostnames,)
    if not hostnames:
        raise CertificateError(place="hostnames", problem="there is none", remedy="give at least one DNS name or IP address")
    return tuple(dict.fromkeys(_normalize_one(name) for name in hostnames))


def general_names(hostnames: Sequence[str]) -> list[x509.GeneralName]:
    """Return the names as entries of a SubjectAlternativeName extension.

    Raises:
        CertificateError: as `normalize`.
    """
    pairs = ((name, _address(name)) for name in normalize(hostnames))
    return [x509.DNSName(name) if address is None else x509.IPAddress(address) for name, address in pairs]


def uncovered(hostnames: Iterable[str], sans: Sequence[str]) -> tuple[str, ...]:
    """Return the host names that no SAN covers, in the given order.

    A wildcard stands for exactly one label, the first (RFC 6125, section 6.4.3). `hostnames` must come from `normalize`.
    """
    known = {san.lower() for san in sans}
    return tuple(name for name in hostnames if not _covered(name, known))


def _normalize_one(name: str) -> str:
    address = _address(name)
    if address is not None:
        return str(address)
    lowered = name.lower()
    # A last label of digits only would be a mistyped IPv4 address, not a host.
    if len(lowered) > _DNS_MAX_LENGTH or not _DNS_NAME.fullmatch(lowered) or lowered.rpartition(".")[2].isdigit():
        raise CertificateError(
            place=f"hostname {name!r}",
            problem="is neither a DNS name nor an IP address",
            remedy="write it like gpugate.gpugate-system.svc or 10.0.0.1, without scheme, port or trailing dot",
        )
    return lowered


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in name:  # A zone is local to one machine; RFC 5280 has no room for it.
        return None
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _covered(name: str, sans: set[str]) -> bool:
    _, dot, parent = name.partition(".")
    return name in sans or (bool(dot) and _address(name) is None and f"*.{parent}" in sans)
