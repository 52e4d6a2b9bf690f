"""Errors of the Kubernetes API."""

from __future__ import annotations

from gpugate.webhook.kube.types import JsonObject

NOT_FOUND, CONFLICT, _GONE = 404, 409, 410


class ClusterError(Exception):
    """Anything that went wrong while reading the cluster."""


class ClusterConfigError(ClusterError):
    """No usable way to the cluster is configured; the text names the file and the remedy."""


class ConnectionLostError(ClusterError):
    """The apiserver was not reached, stopped answering, or sent half an answer or no JSON."""


class ApiError(ClusterError):
    """The apiserver answered, and the answer is a refusal.

    Attributes:
        status: HTTP status code, or the code of a Status object inside a watch.
        reason: the machine-readable word, such as ``Forbidden``.
        message: the sentence meant for people.
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
    """The apiserver does not know the kind: no such group, version or resource (404)."""


class Gone(ApiError):  # noqa: N818 - the apiserver's own word for it
    """The resourceVersion or continue token is too old to go on from (410)."""


def refusal(code: int, status: JsonObject) -> ApiError:
    """Return the error that a ``Status`` object of the apiserver stands for.

    Args:
        code: HTTP status code, or ``status.code`` where the object came inside a watch.
        status: the decoded object; missing fields are replaced.
    """
    # A missing object is answered with its name, a missing kind without one.
    named = (status.get("details") or {}).get("name")
    kinds = {_GONE: Gone, NOT_FOUND: ApiError if named else NotServed}
    reason = str(status.get("reason") or "Unknown")
    return kinds.get(code, ApiError)(code, reason, str(status.get("message") or "no message"))
