"""Read the terms by which a pod selects its nodes, or the pods beside it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.workloads.node_affinity import node_affinity
from gpugate.policies.workloads.pod_set import PodSet

SPREAD: Final = "topologySpreadConstraints"
AFFINITY: Final = "podAffinity"
ANTI_AFFINITY: Final = "podAntiAffinity"


class NodeTerm(NamedTuple):
    """A term of node affinity; a node must match one of those with ``required``."""

    path: Path
    value: Object
    required: bool


class PodTerm(NamedTuple):
    """A term of ``kind`` ``SPREAD``, ``AFFINITY`` or ``ANTI_AFFINITY``; a pod that does not meet a required one stays Pending."""

    path: Path
    value: Object
    kind: str
    required: bool


def node_terms(pods: PodSet) -> Iterator[NodeTerm]:
    """Yield every term of the pods' node affinity, the required ones first.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    path = pods.field("affinity", "nodeAffinity")
    affinity = node_affinity(pods) if pods.spec.get("affinity") else {}
    if not affinity:
        return
    required = (*path, REQUIRED_AFFINITY)
    for at, term in enumerate(mappings(mapping(affinity, REQUIRED_AFFINITY, path), "nodeSelectorTerms", required)):
        yield NodeTerm((*required, "nodeSelectorTerms", at), term, required=True)
    for at, weighted in enumerate(mappings(affinity, PREFERRED_AFFINITY, path)):
        place = (*path, PREFERRED_AFFINITY, at)
        yield NodeTerm((*place, "preference"), mapping(weighted, "preference", place), required=False)


def pod_terms(pods: PodSet) -> Iterator[PodTerm]:
    """Yield every spread constraint of the pods, and every term of their affinity to other pods.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    for at, constraint in enumerate(mappings(pods.spec, SPREAD, pods.field())):
        yield PodTerm(pods.field(SPREAD, at), constraint, SPREAD, constraint.get("whenUnsatisfiable") != "ScheduleAnyway")
    affinity = mapping(pods.spec, "affinity", pods.field()) if pods.spec.get("affinity") else {}
    for kind in (AFFINITY, ANTI_AFFINITY) if affinity else ():
        path = pods.field("affinity", kind)
        terms = mapping(affinity, kind, path[:-1])
        for at, term in enumerate(mappings(terms, REQUIRED_AFFINITY, path)):
            yield PodTerm((*path, REQUIRED_AFFINITY, at), term, kind, required=True)
        for at, weighted in enumerate(mappings(terms, PREFERRED_AFFINITY, path)):
            place = (*path, PREFERRED_AFFINITY, at)
            yield PodTerm((*place, "podAffinityTerm"), mapping(weighted, "podAffinityTerm", place), kind, required=False)
