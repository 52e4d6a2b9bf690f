"""Problems of pods: why a pod does not run, from its own status."""

from datetime import datetime
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import shared_text
from gpugate.policies.kube.fields import Object, mapping, mappings

#: Maximum length of a message: thousands of pods may keep one each, and its first words tell the reason.
_LONGEST: Final = 300
#: Reason of a running pod whose containers are not ready.
NOT_READY: Final = "NotReady"
#: Reason of a pod that a queue gates until admission.
GATED: Final = "SchedulingGated"
#: Waiting reasons of a container that starts normally.
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing", ""})


class PodProblem(NamedTuple):
    """Reason why one pod does not run.

    Attributes:
        since: start in seconds since 1970; 0 if unknown.
        reason: one word: ``Unschedulable``, ``SchedulingGated``, ``ImagePullBackOff``, ``NotReady``, ``Evicted``, ``Leaving``, ...;
            ``Starting`` if nothing is wrong so far.
        message: message of the scheduler, the kubelet or another component.
        node: its node; empty for none.
    """

    since: float
    reason: str
    message: str
    node: str


def moment(written: object) -> float:
    """Return a Kubernetes timestamp in seconds since 1970; 0 if it is absent or invalid."""
    if type(written) is not str:
        return 0.0
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def trouble_of(metadata: Object, status: Object, phase: str, node: str) -> PodProblem | None:
    """Return why a pod does not run; None if it runs or succeeded.

    Raises:
        MalformedError: a field is of the wrong type.
    """
    if phase == "Succeeded":
        return None
    if phase == "Failed":
        return _trouble(
            moment(metadata.get("creationTimestamp")), str(status.get("reason") or "Failed"), status.get("message"), node
        )
    if metadata.get("deletionTimestamp"):
        return _trouble(moment(metadata["deletionTimestamp"]), "Leaving", "", node)
    return _pending(metadata, status, node) if phase == "Pending" else _unready(status, node)


def _unready(status: Object, node: str) -> PodProblem | None:
    ready = _condition(status, "Ready")
    if ready.get("status") in {None, "True"}:
        return None
    return _trouble(moment(ready.get("lastTransitionTime")), NOT_READY, ready.get("message"), node)


def _pending(metadata: Object, status: Object, node: str) -> PodProblem:
    created, placed = moment(metadata.get("creationTimestamp")), _condition(status, "PodScheduled")
    if not node and placed.get("status") == "False":
        return _trouble(created, str(placed.get("reason") or "Unschedulable"), placed.get("message"), node)
    return _starting(status, created, node)


def _condition(status: Object, wanted: str) -> Object:
    found = mappings(status, "conditions", ("status",)) if "conditions" in status else ()
    return next((condition for condition in found if condition.get("type") == wanted), {})


def _starting(status: Object, created: float, node: str) -> PodProblem:
    for place in ("initContainerStatuses", "containerStatuses"):
        for container in mappings(status, place, ("status",)) if place in status else ():
            waiting = mapping(mapping(container, "state", ("status", place)), "waiting", ("status", place, "state"))
            reason = str(waiting.get("reason") or "")
            if reason not in _ORDINARY:
                return _trouble(created, reason, waiting.get("message"), node)
    return _trouble(created, "Starting", "", node)


def _trouble(since: float, reason: str, message: object, node: str) -> PodProblem:
    said = " ".join(str(message or "").split())
    said = said if len(said) <= _LONGEST else said[: _LONGEST - 3] + "..."
    return PodProblem(since, shared_text(reason[:80]), shared_text(said), shared_text(node))
