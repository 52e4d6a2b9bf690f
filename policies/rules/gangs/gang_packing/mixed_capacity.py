"""Spot and on-demand capacity: which of them the pods of a gang may land on."""

from collections.abc import Iterator, Sequence

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import CAPACITY
from gpugate.policies.cluster.records.pods import capacity_of
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Path, mapping, mappings, sequence
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.workloads.pod_set import PodSet


def _both_named(pods: PodSet) -> Path | None:
    """Where required node affinity names spot and another capacity in one expression; None where it does not."""
    if "affinity" not in pods.spec:
        return None
    path = pods.field("affinity", "nodeAffinity")
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", path[:-1])
    required = mapping(affinity, REQUIRED_AFFINITY, path)
    path = (*path, REQUIRED_AFFINITY)
    for at, term in enumerate(mappings(required, "nodeSelectorTerms", path)):
        for number, one in enumerate(mappings(term, "matchExpressions", (*path, "nodeSelectorTerms", at))):
            values = {str(value) for value in sequence(one, "values", ())} if one.get("operator") == "In" else set()
            spot = CAPACITY.get(str(one.get("key")))
            if spot in values and len(values) > 1:
                return (*path, "nodeSelectorTerms", at, "matchExpressions", number, "values")
    return None


def check_mixed(pods: PodSet, size: int, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    """Speak of ``pods`` of a gang of ``size`` that may run on spot and on-demand nodes at once.

    ``shapes`` are those that they may land on.
    """
    named = _both_named(pods)
    spot = sum(len(shape.nodes) for shape in shapes if _is_spot(shape))
    rest = sum(len(shape.nodes) for shape in shapes) - spot
    if named is None and (not spot or not rest or capacity_of(pods)):
        return
    what = "its node affinity names both" if named else f"of the nodes that it may land on {spot} are spot, {rest} not"
    yield Finding(
        "MixedCapacity",
        named or pods.field("nodeSelector"),
        f"nothing keeps the gang of {size} from running on spot and on-demand capacity at once ({what}):"
        " a reclaimed spot node ends the whole gang, and what the on-demand ones cost is lost with it",
        "Select one of the two in nodeSelector, for all pods of the gang.",
        rests_on=() if named else ("nodes",),
    )


def _is_spot(shape: NodeShape) -> bool:
    # Shapes are split by these labels: all nodes of one have the same values.
    return any(spot in shape.labels.get(key, ()) for key, spot in CAPACITY.items())
