"""Why a pod that is one of several does not run, as far as the pod itself says so."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import shared_text
from gpugate.policies.kube.fields import Object, mapping, mappings

#: A scheduler's message counts nodes by what they lack: the first words tell, and thousands of pods may keep one each.
_LONGEST: Final = 300
#: The reason of a pod that runs on a node, and whose containers do not answer.
NOT_READY: Final = "NotReady"
#: The reason of a pod that a queue holds back until it is admitted.
GATED: Final = "SchedulingGated"
#: What a container waits for while it starts as it should.
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing", ""})


class PodProblem(NamedTuple):
    """Why one pod does not run.

    Attributes:
        since: when it began, in seconds since 1970; 0 where the pod does not say.
        reason: one word: ``Unschedulable``, ``SchedulingGated``, ``ImagePullBackOff``, ``NotReady``, ``Evicted``, ``Leaving``, ...;
            ``Starting`` where nothing is wrong so far.
        message: what the scheduler, the kubelet or whoever else says about it.
        node: the node that it is on; empty for none.
    """

    since: float
    reason: str
    message: str
    node: str


def moment(written: object) -> float:
    """A Kubernetes timestamp in seconds since 1970; 0 for none that can be read."""
    if type(written) is not str:
        return 0.0
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def trouble_of(metadata: Object, status: Object, phase: str, node: str) -> PodProblem | None:
    """Why a pod does not run; None for one that does, or has ended well.

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
    return next((one for one in found if one.get("type") == wanted), {})


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
