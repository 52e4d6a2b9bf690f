"""Errors of the Kubernetes API."""

from gpugate.webhook.kube.types import JsonObject

NOT_FOUND, CONFLICT, _GONE = 404, 409, 410


class ClusterError(Exception):
    """The cluster cannot be read or written."""


class ClusterConfigError(ClusterError):
    """The configured access to the cluster is unusable; the message names the file and the remedy."""


class ConnectionLostError(ClusterError):
    """No connection, no answer, an incomplete answer, or an answer that is not JSON."""


class ApiError(ClusterError):
    """An error status of the apiserver: HTTP status code, machine-readable reason (``Forbidden``), message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


class NotServed(ApiError):  # noqa: N818 - a state of the cluster, not a fault
    """The apiserver does not serve the kind: no such group, version or resource (404)."""


class Gone(ApiError):  # noqa: N818 - the apiserver's own word for it
    """The resourceVersion or continue token is too old (410)."""


def refusal(code: int, status: JsonObject) -> ApiError:
    """Return the error for a ``Status`` object of the apiserver, with the HTTP status, or its own code inside a watch."""
    # A missing object is answered with its name, a missing kind without one.
    named = (status.get("details") or {}).get("name")
    kinds = {_GONE: Gone, NOT_FOUND: ApiError if named else NotServed}
    reason = str(status.get("reason") or "Unknown")
    return kinds.get(code, ApiError)(code, reason, str(status.get("message") or "no message"))
