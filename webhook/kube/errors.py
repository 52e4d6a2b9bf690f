"""Errors of the Kubernetes API."""

from gpugate.webhook.kube.types import JsonObject

NOT_FOUND, CONFLICT, _GONE = 404, 409, 410


class ClusterError(Exception):
    """Anything that went wrong while reading the cluster."""


class ClusterConfigError(ClusterError):
    """No usable way to the cluster is configured; the text names the file and the remedy."""


class ConnectionLostError(ClusterError):
    """No connection, no answer, an incomplete answer, or an answer that is not JSON."""


class ApiError(ClusterError):
    """An error status of the apiserver.

    Attributes:
        status: HTTP status code, or the code of a Status object inside a watch.
        reason: the machine-readable reason, such as ``Forbidden``.
        message: the message for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Keep the three parts; the text of the error shows all of them."""
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        """Show all three parts in one line."""
        return f"{self.status} {self.reason}: {self.message}"


class NotServed(ApiError):  # noqa: N818 - a state of the cluster, not a fault
    """The apiserver does not serve the kind: no such group, version or resource (404)."""


class Gone(ApiError):  # noqa: N818 - the apiserver's own word for it
    """The resourceVersion or continue token is too old (410)."""


def refusal(code: int, status: JsonObject) -> ApiError:
    """Return the error for a ``Status`` object of the apiserver.

    Args:
        code: HTTP status code, or ``status.code`` of an object inside a watch.
        status: the decoded object; missing fields get defaults.
    """
    # A missing object is answered with its name, a missing kind without one.
    named = (status.get("details") or {}).get("name")
    kinds = {_GONE: Gone, NOT_FOUND: ApiError if named else NotServed}
    reason = str(status.get("reason") or "Unknown")
    return kinds.get(code, ApiError)(code, reason, str(status.get("message") or "no message"))
