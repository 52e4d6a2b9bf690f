"""What pods state of how they are spread, and how they are told from others."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.kube.fields import Object, integer_at, lookup, mapping, mappings
from gpugate.policies.kube.managers import is_user_set
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_OTHERS: Final = ("podAffinity", "podAntiAffinity")


def has_replicas(workload: Workload, pods: PodSet) -> bool:
    """Whether the pods are replicas that serve one by one, and there are or may be several: an autoscaler states no number."""
    if pods.kind.revision_label is None:
        return False
    path = (*pods.path[:-1], "replicas")
    written = integer_at(workload.root, path)
    return written is None or written > 1 or (written == 1 and is_user_set(workload.root, path) is False)


def selector_of(workload: Workload, pods: PodSet) -> Object | None:
    """The label selector by which the controller knows its pods; None where it has none that selects something."""
    path = (*pods.path[:-1], "selector")
    found = lookup(workload.root, path)
    if type(found) is not dict:
        return None
    labels, expressions = mapping(found, "matchLabels", path), mappings(found, "matchExpressions", path)
    selector: Object = {"matchLabels": labels} if labels else {}
    return (selector | {"matchExpressions": expressions} if expressions else selector) or None


def revision_keys(pods: PodSet, selector: Object) -> list[str]:
    """The labels by which only pods of the same revision are counted; the API takes none that the selector has, too."""
    key = pods.kind.revision_label
    named = {*selector.get("matchLabels", ()), *(str(one.get("key")) for one in selector.get("matchExpressions", ()))}
    return [key] if key and key not in named else []


def placed_over(pods: PodSet) -> set[str]:
    """The topology keys over which the pods state how they are spread, or kept together."""
    constraints = mappings(pods.spec, "topologySpreadConstraints", pods.field())
    found = {str(one.get("topologyKey")) for one in constraints}
    return found | {str(term.get("topologyKey")) for term in _terms(pods)}


def _terms(pods: PodSet) -> Iterator[Object]:
    affinity = mapping(pods.spec, "affinity", pods.field())
    for kind in _OTHERS:
        path = pods.field("affinity", kind)
        stated = mapping(affinity, kind, path[:-1])
        yield from mappings(stated, REQUIRED_AFFINITY, path)
        for term in mappings(stated, PREFERRED_AFFINITY, path):
            yield mapping(term, "podAffinityTerm", (*path, PREFERRED_AFFINITY))
