"""Read the edits that gpugate recorded in an object's annotation.

A record is a list of ``["add", place, value]``, ``["replace", place, value, what stood there]`` and ``["remove", place]``.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Object, Path, from_pointer, mapping

ANNOTATION: Final = "gpugate.io/mutations"
#: The record is for gpugate's own few edits; anything larger was not written by it. Bytes.
LARGEST: Final = 64 * 1024
_LENGTHS: Final = {"add": 3, "replace": 4, "remove": 2}


def recorded(root: Object) -> list[list[Any]]:
    """The operations that the object's annotation records; none where it has none that gpugate could have written."""
    annotations = mapping(mapping(root, "metadata", ()), "annotations", ("metadata",))
    text = annotations.get(ANNOTATION)
    if type(text) is not str or len(text) > LARGEST:
        return []
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    return [op for op in found if _is_operation(op)] if type(found) is list else []


def _is_operation(op: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    return (
        type(op) is list
        and len(op) >= 2
        and type(op[0]) is str
        and _LENGTHS.get(op[0]) == len(op)
        and type(op[1]) is str
        and op[1].startswith("/")
        and _is_ours(from_pointer(op[1]), *op[2:3])
    )


#: Fields that rules write in pod templates and job specs: a test holds them equal to the ``writes`` of all rules.
RULE_FIELDS: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "backoffLimit",
        "cleanPodPolicy",
        "env",
        "image",
        "imagePullPolicy",
        "podFailurePolicy",
        "podReplacementPolicy",
        "priorityClassName",
        "resources",
        "schedulerName",
        "schedulingGroup",
        "shutdownAfterJobFinishes",
        "tolerations",
        "topologySpreadConstraints",
        "ttlSecondsAfterFinished",
        "volumeMounts",
        "volumes",
    }
)
#: Where the ``resources`` of a template lie in a TrainJob.
_RESOURCES_OF_TRAIN_JOB: Final = "resourcesPerNode"
_WRITTEN: Final = RULE_FIELDS | {_RESOURCES_OF_TRAIN_JOB}
#: What holds some of these where nobody has stated it.
_HOLDER: Final = "runPolicy"
#: Where rules write, too, but only what takes rights away.
_CONTEXT: Final = "securityContext"


def _is_ours(path: Path, value: Any = None) -> bool:  # noqa: ANN401 - untrusted JSON
    """Whether a rule may have written ``value`` at ``path``: a forged record can't keep alive what a user takes out elsewhere."""
    if path[0] == "metadata":
        return path[1:2] in {("labels",), ("annotations",)}
    if _CONTEXT in path:
        return _hardens(path[path.index(_CONTEXT) + 1 :], value)
    if path[-1] == _HOLDER:
        return type(value) is dict and value.keys() <= _WRITTEN
    return "metadata" in path or not _WRITTEN.isdisjoint(path)


def _hardens(path: Path, value: Any) -> bool:  # noqa: ANN401 - untrusted JSON
    """Whether ``value`` at ``path`` below a security context takes rights away, and gives none."""
    if not path:
        return type(value) is dict and all(_hardens((field,), one) for field, one in value.items())
    if path == ("seccompProfile",):
        return bool(value == {"type": "RuntimeDefault"})
    if path == ("runAsUser",):
        return type(value) is int and value > 0
    return (path == ("allowPrivilegeEscalation",) and value is False) or (path == ("runAsNonRoot",) and value is True)
