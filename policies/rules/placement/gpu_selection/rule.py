"""Pods go to the cards that the workload names: product, architecture, memory, compute capability, driver.

## What it does

Turns short annotations of the object or its pod template into a required node affinity on the labels that NVIDIA's GPU Feature
Discovery writes. What a template says goes before what the object says.

| annotation | example | what it asks of a node |
|---|---|---|
| `gpugate.io/gpu` | `h100`, `a100-80gb,h100` | `nvidia.com/gpu.product` is one of the cards so named |
| `gpugate.io/gpu-family` | `hopper,blackwell` | `nvidia.com/gpu.family` |
| `gpugate.io/min-gpu-memory` | `40Gi`, `80G` | `nvidia.com/gpu.memory`, or the slice's own label, which are in MiB |
| `gpugate.io/min-compute` | `"8.6"` | `nvidia.com/gpu.compute.major` and `.minor` |
| `gpugate.io/min-driver` | `"550.54"` | `nvidia.com/cuda.driver.major`, `.minor` and `.rev` |
| `gpugate.io/min-cuda` | `"12.4"` | `nvidia.com/cuda.runtime.major` and `.minor`: what the driver serves |

A name of a card stands for every card all of whose words it has, of those that gpugate knows and of those found on nodes; the
label's value in full is taken as it is. Shares of time-sliced cards and slices are another product, which a name with `shared` or
`mig` in it means: `t4-shared`. The affinity is joined with what is there: each `nodeSelectorTerms` entry is extended, and
doubled where a requirement has alternatives, so that the pods go to exactly those nodes that both let them onto. What
the affinity asks for already is not asked for again.

Refuses what cannot be read (`Unreadable`), a card that nobody knows (`UnknownProduct`), a requirement that the pods' own node
selector or affinity rules out (`Contradicts`), and, where nodes are known, what none of them meets (`NoNodeMatches`) or only nodes
that the pods' selectors keep them off (`ShutOut`), with what there is instead. Warns where cards miss the memory by as much as
their maker's GB miss a GiB (`AlmostEnough`).

The labels decide, not the nodes of the day: a node that comes or goes changes no template. Only a card that gpugate does not know
yet is looked up on nodes.

## Why

A selector for one card is an exact string that nobody remembers, and differs by form and memory. The operators are `In`, `NotIn`,
`Exists`, `DoesNotExist`, `Gt` and `Lt`: there is no "at least", `Gt` is strict and reads whole numbers, and "8.6 at least" takes
two terms. A misspelt operator or a wrong join lets pods onto cards that they fail on, or onto none.

A card sold as 80 GB may have 81559MiB = 79.6Gi: `80Gi` shuts out H100, `80G` does not.

## Practice

- Basics guide, "Select Specific GPU Type" and "Use Node Affinity": a card chosen by its product, memory and compute capability,
  with operators that exist and bounds that mean what was meant.
- NUMA guide, "Node Affinity for GPU Topology": multi-GPU training bound to nodes that suit it; `Gte` is no operator.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": each kind of work on the card that fits it.
- Orchestration guide, "FAQ": what depends on a compute capability or a CUDA version says so.

## Example

Before: the annotations `gpugate.io/gpu: h100` and `gpugate.io/min-driver: "550.54"`. After:

```yaml
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL, NVIDIA-H100-PCIe]}
            - {key: nvidia.com/cuda.driver.major, operator: Gt, values: ["550"]}
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3, NVIDIA-H100-NVL, NVIDIA-H100-PCIe]}
            - {key: nvidia.com/cuda.driver.major, operator: In, values: ["550"]}
            - {key: nvidia.com/cuda.driver.minor, operator: Gt, values: ["53"]}
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.rule import Params, Rule
from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.fields import Path, mapping
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.memo import remember
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.gpu_selection.inventory import almost_enough, inventory, matches, nodes_in, unlabelled
from gpugate.policies.rules.placement.gpu_selection.products import PRODUCT_LABEL
from gpugate.policies.rules.placement.gpu_selection.requirements import (
    CUDA,
    DRIVER,
    KEYS,
    MEMORY,
    Labels,
    NodeRequirement,
    requirements_before,
    requirements_of,
    said_something,
    says_something,
)
from gpugate.policies.scheduling.node_selection import are_autoscaled, node_candidates
from gpugate.policies.workloads.metadata import annotation_path, copy_to_template
from gpugate.policies.workloads.node_affinity import both, fits, growth, require, required_terms, rules_out
from gpugate.policies.workloads.workload import PodSet, Workload

_NODES: Final = ("nodes",)
#: Terms that a pod's node affinity may come to. The API sets no bound; the scheduler reads each of them for each node.
_MOST_TERMS: Final = 64
_NVIDIA: Final = "nvidia.com/"
#: Names under which dynamic resource allocation serves devices of any maker.
_ANY_MAKER: Final = "deviceclass.resource.kubernetes.io/"


class PlacementParams(Params):
    """Parameters of `placement`."""

    shared: bool = False
    """Whether cards handed out in shares of time count as the card, too, where the name does not say `shared`."""
    driver_labels: Literal["Old", "New"] = "Old"
    """Which labels say the versions of driver and CUDA: `Old` is `nvidia.com/cuda.driver.major` and the like, which every release
    of GPU Feature Discovery up to v0.20.0 writes; `New` is `nvidia.com/cuda.driver-version.major`, written since v0.15.0."""
    no_node_matches: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that no known node suits are refused, or only warned about (nodes that scale up from none)."""


def _labels(params: PlacementParams, snapshot: ClusterSnapshot) -> Labels:
    found: frozenset[str] | None = snapshot.memo.get("placement")
    if found is None:
        found = frozenset(value for shape in snapshot.shapes for value in shape.labels.get(PRODUCT_LABEL, ()) if value)
        remember(snapshot.memo, "placement", found)
    return Labels(params.driver_labels, params.shared, found)


def mutate(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Require of the nodes what the annotations say."""
    if not says_something(workload) and not said_something(workload):
        return ()
    if workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root):
        # Kueue chose the pod's place by the template.
        return ()
    labels = _labels(params, snapshot)
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _place(workload, pods, labels)]


def _place(workload: Workload, pods: PodSet, labels: Labels) -> list[Edit]:
    wanted, _ = requirements_of(workload, pods, labels)
    was = requirements_before(workload, pods, labels) if workload.old is not None else []
    if not (wanted or was) or _of_other_makers(pods):
        return []
    alternatives = both(one.alternatives for one in wanted) if wanted else ()
    before = both(one.alternatives for one in was) if was else ()
    if growth(pods, alternatives).terms > _MOST_TERMS:
        return []
    note = f"node affinity for {', '.join(one.shown for one in wanted)}" if wanted else ""
    edits = list(require(pods, alternatives, note, before))
    if edits and required_terms(pods):
        edits += copy_to_template(workload, pods, KEYS)
    return edits


def _of_other_makers(pods: PodSet) -> list[str]:
    return sorted(name for name in pods.accelerators() if not name.startswith((_NVIDIA, _ANY_MAKER)) and name != LEGACY_GPU)


def check(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse what cannot be read or met."""
    if not says_something(workload):
        return ()
    labels = _labels(params, snapshot)
    found = [finding for pods in workload.templated_gpu_pod_sets() for finding in _check(workload, pods, labels, params, snapshot)]
    # Templates that go by the object's annotation are told of once.
    return list(dict.fromkeys(found))


def _check(
    workload: Workload, pods: PodSet, labels: Labels, params: PlacementParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    wanted, bad = requirements_of(workload, pods, labels)
    for one in bad:
        refuse = not workload.owner_was_reviewed()
        place, what = annotation_path(pods, one.key), f"{one.key}: {one.what}"
        if one.unknown:
            remedy = f"{one.remedy}{_products_there(labels)}"
            yield Finding("UnknownProduct", place, what, remedy, Level.DENY if refuse else Level.WARN)
        else:
            yield Finding("Unreadable", place, what, one.remedy, Level.DENY if refuse else Level.WARN)
    if not wanted:
        return
    place = annotation_path(pods, wanted[0].key)
    others = _of_other_makers(pods)
    if others:
        yield Finding(
            "OtherMaker",
            place,
            f"{wanted[0].shown}: nodes of {' and '.join(others)} have no labels of NVIDIA's GPU Feature Discovery",
            f"Remove {wanted[0].key}, and choose the nodes by labels of their own.",
        )
        return
    yield from _check_terms(pods, wanted, place)
    contradictions = list(_contradictions(pods, wanted))
    yield from contradictions
    if not contradictions:
        yield from _check_nodes(workload, pods, wanted, params, snapshot)


def _products_there(labels: Labels) -> str:
    return f" On nodes there are {', '.join(sorted(labels.found))}." if labels.found else ""


def _check_terms(pods: PodSet, wanted: Sequence[NodeRequirement], place: Path) -> Iterator[Finding]:
    alternatives = both(one.alternatives for one in wanted)
    grown = growth(pods, alternatives)
    # Where all ask for it already nothing is added: it was written, and others may have multiplied it since.
    if grown.unmet and grown.terms > _MOST_TERMS:
        met = f" + {grown.met} that ask for it already" if grown.met else ""
        yield Finding(
            "TooManyTerms",
            place,
            f"{grown.unmet} nodeSelectorTerms x {grown.alternatives} alternatives{met} = {grown.terms} > {_MOST_TERMS}",
            "Ask for a version by its first part alone, or state fewer terms.",
            measure=grown.terms,
        )


def _contradictions(pods: PodSet, wanted: Sequence[NodeRequirement]) -> Iterator[Finding]:
    """Where the pods' own selectors ask for what a requirement rules out."""
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    terms = [term for term in required_terms(pods) if term.get("matchExpressions") or term.get("matchFields")]
    for one in wanted:
        for key in one.labels:
            value = selector.get(key)
            if type(value) is str and all(
                any(expression["key"] == key and not fits(expression, value) for expression in alternative)
                for alternative in one.alternatives
            ):
                yield Finding(
                    "Contradicts",
                    pods.field("nodeSelector", key),
                    f"{one.shown} and the node selector {key}: {value} leave no node",
                    f"Remove the one or the other; gpugate writes the affinity for {one.key}.",
                )
        if terms and all(all(any(rules_out(term, part) for part in parts) for parts in one.alternatives) for term in terms):
            yield Finding(
                "Contradicts",
                pods.field("affinity", "nodeAffinity"),
                f"{one.shown} and the required node affinity on {' and '.join(one.labels)} leave no node",
                f"Remove the one or the other; gpugate writes the affinity for {one.key}.",
            )


def _check_nodes(
    workload: Workload, pods: PodSet, wanted: Sequence[NodeRequirement], params: PlacementParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    place = annotation_path(pods, wanted[0].key)
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        yield not_synced("NodesUnknown", place, "the nodes", "whether one of them suits the pods")
        return
    chosen = node_candidates(pods, snapshot)
    if not chosen.with_resource:
        return
    refuse = params.no_node_matches == "Deny" and not workload.owner_was_reviewed() and not are_autoscaled(chosen.with_resource)
    suited = [shape for shape in chosen.with_resource if all(matches(shape, one) for one in wanted)]
    if not suited:
        yield _none_matches(pods, wanted, chosen.with_resource, place, refuse=refuse)
    elif not any(shape in chosen.matching for shape in suited):
        yield Finding(
            "ShutOut",
            place,
            f"{_shown(wanted)}: what suits is {inventory(suited)}, and the pods' node selector or affinity keeps them off",
            "Remove from the node selector or affinity what keeps them off, or ask for another card.",
            Level.DENY if refuse else Level.WARN,
            rests_on=_NODES,
        )
    for one in wanted:
        missed = almost_enough(chosen.with_resource, one) if one.key == MEMORY else ()
        if missed:
            yield Finding(
                "AlmostEnough",
                annotation_path(pods, MEMORY),
                f"{one.shown} shuts out {inventory(missed)}: a GB of a card's maker is 10^9 bytes, a Gi is 2^30",
                f"Write {MEMORY}: {one.written.removesuffix('i')} for what is sold as so much.",
                Level.WARN,
            )


def _shown(wanted: Sequence[NodeRequirement]) -> str:
    return " and ".join(one.shown for one in wanted)


def _none_matches(
    pods: PodSet, wanted: Sequence[NodeRequirement], offering: Sequence[NodeShape], place: Path, *, refuse: bool
) -> Finding:
    silent = unlabelled(offering, wanted)
    nodes = nodes_in(offering)
    names = " and ".join(sorted(pods.accelerators()))
    if silent:
        labels = sorted({label for one in wanted for label in one.labels if any(label not in shape.labels for shape in silent)})
        other = " If the nodes have labels of the other generation, set driverLabels in the policy."
        versions = any(one.key in {DRIVER, CUDA} for one in wanted)
        return Finding(
            "LabelsMissing",
            place,
            f"{_shown(wanted)}: no node is known to match, and {nodes_in(silent)} of {nodes} that offer {names} lack"
            f" {' and '.join(labels)}",
            f"Run NVIDIA's GPU Feature Discovery, which writes the labels.{other if versions else ''}",
            Level.UNKNOWN,
            rests_on=_NODES,
        )
    return Finding(
        "NoNodeMatches",
        place,
        f"{_shown(wanted)}: none of the {nodes} nodes that offer {names} matches; there are {inventory(offering)}",
        "Ask for what there is, or set noNodeMatches: Warn where such nodes are still to come.",
        Level.DENY if refuse else Level.WARN,
        rests_on=_NODES,
    )


RULE = Rule(
    id="placement",
    title="Pods go to the GPU product, architecture, memory, compute capability and driver that their annotations name",
    since="0.1.0",
    params=PlacementParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
    trigger_annotations=frozenset(KEYS),
)
