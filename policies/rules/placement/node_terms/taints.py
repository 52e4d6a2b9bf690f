"""Tolerations that match no taint of any node, with the taint that is meant."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.records.common import CAPACITY, Taint, Toleration, toleration_of
from gpugate.policies.findings import Finding
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Path, mappings
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.kube.taints import is_transient_taint, words_in
from gpugate.policies.rules.placement.node_terms.labels import shown_taint
from gpugate.policies.workloads.pod_set import PodSet

_SPOT: Final = frozenset({"spot", "preemptible", "preemption"})
#: What the chart of JupyterHub tolerates in every user's pod, for nodes that a hub may have of its own (Zero to JupyterHub 4.0,
#: ``scheduling.userPods``); the second is for clouds that take no slash.
_OF_CHARTS: Final = frozenset({"hub.jupyter.org/dedicated", "hub.jupyter.org_dedicated"})


def is_usual(key: str) -> bool:
    """Whether nodes that are not there now may carry a taint of this key: spot, a node's condition, an accelerator's own."""
    return (
        is_accelerator(key)
        or key in CAPACITY
        or key in _OF_CHARTS
        or is_transient_taint(key, "")
        or not _SPOT.isdisjoint(words_in(key))
    )


def check_taints(pods: PodSet, taints: Sequence[Taint], known: Collection[str]) -> Iterator[Finding]:
    """Speak of tolerations that match none of ``taints``, those of all nodes; ``known``: keys of nodes that may come."""
    written = mappings(pods.spec, "tolerations", pods.field())
    tolerations = [toleration_of(one) for one in written]
    for at, toleration in enumerate(tolerations):
        key = toleration.key
        if not key or toleration.operator not in {"Equal", "Exists"} or any(toleration.covers(taint) for taint in taints):
            continue
        alike = [taint for taint in taints if taint.key == key]
        path = pods.field("tolerations", at)
        if alike:
            # Where another toleration does it, this one may be meant for other nodes.
            if not any(
                other.covers(taint) for other in (*tolerations, *map(toleration_of, pods.predicted_tolerations)) for taint in alike
            ):
                yield _differs(path, toleration, alike)
        elif key not in known and not is_usual(key):
            yield _matches_none(path, toleration, taints)


def _differs(path: Path, toleration: Toleration, alike: Sequence[Taint]) -> Finding:
    effects = {taint.effect for taint in alike}
    field = "effect" if toleration.effect and toleration.effect not in effects else "value"
    return Finding(
        "ToleratesNothing",
        (*path, field),
        f"{_shown(toleration)} matches no taint: the nodes have {', '.join(map(shown_taint, alike))}",
        f"Write {'effect ' + alike[0].effect if field == 'effect' else _value(alike[0])}.",
    )


def _value(taint: Taint) -> str:
    return f'value "{taint.value}", or operator Exists without one' if taint.value else "operator Exists without a value"


def _matches_none(path: Path, toleration: Toleration, taints: Sequence[Taint]) -> Finding:
    near = closest_match(toleration.key, {taint.key for taint in taints})
    if near is None:
        remedy = "Remove the toleration, or name its key in the policy where nodes with the taint are still to come."
    else:
        remedy = f"Write {near} instead of {toleration.key:.80}."
    return Finding(
        "ToleratesNothing",
        (*path, "key"),
        f"{_shown(toleration)} matches no taint: no node with accelerators has one of that key",
        remedy,
    )


def _shown(toleration: Toleration) -> str:
    value = f"={toleration.value:.40}" if toleration.operator == "Equal" and toleration.value else ""
    return f"{toleration.key:.80}{value}{':' + toleration.effect if toleration.effect else ''}"
