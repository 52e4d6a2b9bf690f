"""Every place of a pod where it says on which nodes, or beside which pods, it may run."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.workloads.pod_set import PodSet

SPREAD: Final = "topologySpreadConstraints"
AFFINITY: Final = "podAffinity"
ANTI_AFFINITY: Final = "podAntiAffinity"


class NodeTerm(NamedTuple):
    """One term of node affinity.

    Attributes:
        path: where it is.
        written: the term.
        required: whether it is one of those of which a node must meet one.
    """

    path: Path
    written: Object
    required: bool


class PodTerm(NamedTuple):
    """A spread constraint, or a term of pod affinity or anti-affinity.

    Attributes:
        path: where it is.
        written: the constraint or term.
        kind: ``SPREAD``, ``AFFINITY`` or ``ANTI_AFFINITY``.
        required: whether a pod that can't meet it is not placed.
    """

    path: Path
    written: Object
    kind: str
    required: bool


def node_terms(pods: PodSet) -> Iterator[NodeTerm]:
    """Every term of the pods' node affinity, those required first.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    if not pods.spec.get("affinity"):
        return
    path = pods.field("affinity", "nodeAffinity")
    held = mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", path[:-1])
    if not held:
        return
    required = (*path, REQUIRED_AFFINITY)
    for at, term in enumerate(mappings(mapping(held, REQUIRED_AFFINITY, path), "nodeSelectorTerms", required)):
        yield NodeTerm((*required, "nodeSelectorTerms", at), term, required=True)
    for at, one in enumerate(mappings(held, PREFERRED_AFFINITY, path)):
        place = (*path, PREFERRED_AFFINITY, at)
        yield NodeTerm((*place, "preference"), mapping(one, "preference", place), required=False)


def pod_terms(pods: PodSet) -> Iterator[PodTerm]:
    """Every spread constraint of the pods, and every term of their affinity to other pods.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    for at, one in enumerate(mappings(pods.spec, SPREAD, pods.field())):
        yield PodTerm(pods.field(SPREAD, at), one, SPREAD, one.get("whenUnsatisfiable") != "ScheduleAnyway")
    if not pods.spec.get("affinity"):
        return
    affinity = mapping(pods.spec, "affinity", pods.field())
    for kind in (AFFINITY, ANTI_AFFINITY):
        path = pods.field("affinity", kind)
        held = mapping(affinity, kind, path[:-1])
        for at, term in enumerate(mappings(held, REQUIRED_AFFINITY, path)):
            yield PodTerm((*path, REQUIRED_AFFINITY, at), term, kind, required=True)
        for at, one in enumerate(mappings(held, PREFERRED_AFFINITY, path)):
            place = (*path, PREFERRED_AFFINITY, at)
            yield PodTerm((*place, "podAffinityTerm"), mapping(one, "podAffinityTerm", place), kind, required=False)
