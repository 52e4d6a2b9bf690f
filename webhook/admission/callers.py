"""Who may send reviews: anybody, or holders of a client certificate of a CA, with a name if names are given.

The TLS context has verified the certificate. The names are compared as kube-apiserver compares those of its front proxy
(``--requestheader-allowed-names``).
"""

from asyncio import BaseTransport
from collections.abc import Collection, Mapping
from typing import Any, Final

#: Types of alternative names that identify a program.
_ALTERNATIVE: Final = frozenset({"DNS", "URI"})


def names_in(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common names and alternative names of a certificate from :meth:`ssl.SSLSocket.getpeercert`."""
    names = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return names | {value for kind, value in certificate.get("subjectAltName", ()) if kind in _ALTERNATIVE}


def rejection(transport: BaseTransport | None, allowed: Collection[str]) -> tuple[int, str] | None:
    """Return the HTTP status and text for a caller who may not send reviews; None if the caller may.

    Without ``allowed`` names, any certificate that was verified is enough.
    """
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return 401, "a client certificate signed by the configured CA is required"
    if allowed and names_in(certificate).isdisjoint(allowed):
        return 403, "the client certificate has none of the configured names"
    return None
