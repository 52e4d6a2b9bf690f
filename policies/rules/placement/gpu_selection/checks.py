"""Findings of the rule `placement`."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.kube.fields import Path, mapping
from gpugate.policies.rules.placement.gpu_selection.inventory import almost_enough, inventory, matches, nodes_in, unlabelled
from gpugate.policies.rules.placement.gpu_selection.mutate import MOST_TERMS, labels_for, of_other_makers
from gpugate.policies.rules.placement.gpu_selection.params import PlacementParams
from gpugate.policies.rules.placement.gpu_selection.requirements import (
    CUDA,
    DRIVER,
    MEMORY,
    Labels,
    NodeRequirement,
    requirements_of,
    says_something,
)
from gpugate.policies.scheduling.node_selection import are_autoscaled, node_candidates
from gpugate.policies.workloads.metadata import annotation_path
from gpugate.policies.workloads.node_affinity import both, fits, growth, required_terms, rules_out
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NODES: Final = ("nodes",)


def check(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse what cannot be read or met."""
    if not says_something(workload):
        return
    labels = labels_for(params, snapshot)
    found = [finding for pods in workload.templated_gpu_pod_sets() for finding in _check(workload, pods, labels, snapshot)]
    # Templates that go by the object's annotation are told of once.
    yield from dict.fromkeys(found)


def _check(workload: Workload, pods: PodSet, labels: Labels, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    wanted, bad = requirements_of(workload, pods, labels)
    for one in bad:
        place, what = annotation_path(pods, one.key), f"{one.key}: {one.what}"
        if one.unknown:
            remedy = f"{one.remedy}{_products_there(labels)}"
            yield Finding("UnknownProduct", place, what, remedy)
        else:
            yield Finding("Unreadable", place, what, one.remedy)
    if not wanted:
        return
    place = annotation_path(pods, wanted[0].key)
    others = of_other_makers(pods)
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
        yield from _check_nodes(pods, wanted, snapshot)


def _products_there(labels: Labels) -> str:
    return f" On nodes there are {', '.join(sorted(labels.found))}." if labels.found else ""


def _check_terms(pods: PodSet, wanted: Sequence[NodeRequirement], place: Path) -> Iterator[Finding]:
    alternatives = both(one.alternatives for one in wanted)
    grown = growth(pods, alternatives)
    # Where all ask for it already nothing is added: it was written, and others may have multiplied it since.
    if grown.unmet and grown.terms > MOST_TERMS:
        met = f" + {grown.met} that ask for it already" if grown.met else ""
        yield Finding(
            "TooManyTerms",
            place,
            f"{grown.unmet} nodeSelectorTerms x {grown.alternatives} alternatives{met} = {grown.terms} > {MOST_TERMS}",
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


def _check_nodes(pods: PodSet, wanted: Sequence[NodeRequirement], snapshot: ClusterSnapshot) -> Iterator[Finding]:
    place = annotation_path(pods, wanted[0].key)
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        yield not_synced("NodesUnknown", place, "the nodes", "whether one of them suits the pods")
        return
    chosen = node_candidates(pods, snapshot)
    if not chosen.with_resource:
        return
    level = Level.WARN if are_autoscaled(chosen.with_resource) else Level.DENY
    suited = [shape for shape in chosen.with_resource if all(matches(shape, one) for one in wanted)]
    if not suited:
        yield _none_matches(pods, wanted, chosen.with_resource, place, level)
    elif not any(shape in chosen.matching for shape in suited):
        yield Finding(
            "ShutOut",
            place,
            f"{_shown(wanted)}: what suits is {inventory(suited)}, and the pods' node selector or affinity keeps them off",
            "Remove from the node selector or affinity what keeps them off, or ask for another card.",
            level,
        )
    for one in wanted:
        missed = almost_enough(chosen.with_resource, one) if one.key == MEMORY else ()
        if missed:
            yield Finding(
                "AlmostEnough",
                annotation_path(pods, MEMORY),
                f"{one.shown} shuts out {inventory(missed)}: a GB of a card's maker is 10^9 bytes, a Gi is 2^30",
                f"Write {MEMORY}: {one.written.removesuffix('i')} for what is sold as so much.",
            )


def _shown(wanted: Sequence[NodeRequirement]) -> str:
    return " and ".join(one.shown for one in wanted)


def _none_matches(
    pods: PodSet, wanted: Sequence[NodeRequirement], offering: Sequence[NodeShape], place: Path, level: Level
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
            rests_on=_NODES,
        )
    return Finding(
        "NoNodeMatches",
        place,
        f"{_shown(wanted)}: none of the {nodes} nodes that offer {names} matches; there are {inventory(offering)}",
        "Ask for what there is, or set noNodeMatches: Warn where such nodes are still to come.",
        level,
    )
