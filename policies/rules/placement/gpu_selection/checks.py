"""Findings of the rule `placement`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.fields import Path, mapping
from gpugate.policies.kube.quantity import GIB
from gpugate.policies.rules.placement.gpu_selection.mutate import (
    COMPUTE_LABELS,
    CUDA,
    DRIVER,
    DRIVER_LABELS,
    KEYS,
    MEMORY,
    MOST_TERMS,
    Labels,
    NodeRequirement,
    PlacementParams,
    labels_for,
    other_vendors,
    requirements_of,
)
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL
from gpugate.policies.scheduling.node_selection import meets, node_candidates
from gpugate.policies.workloads.metadata import annotation_path, has_any_annotation
from gpugate.policies.workloads.node_affinity import both, fits, growth, required_terms, rules_out
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 5
_ABSENT: Final = frozenset({None})
_GB: Final = 10**9


def check(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for annotations that are invalid, or that no node matches."""
    if not has_any_annotation(workload, KEYS):
        return
    labels = labels_for(params, snapshot)
    pod_sets = workload.templated_gpu_pod_sets()
    # Several templates may follow one annotation of the object.
    yield from dict.fromkeys(finding for pods in pod_sets for finding in _check(workload, pods, labels, snapshot))


def _check(workload: Workload, pods: PodSet, labels: Labels, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    requirements, invalid = requirements_of(workload, pods, labels)
    for annotation in invalid:
        reason, products = "Unreadable", ""
        if annotation.unknown:
            reason, products = "UnknownProduct", f"; the nodes have {', '.join(sorted(labels.products))}" if labels.products else ""
        message = f"{annotation.key}: {annotation.problem}{products}"
        yield Finding(reason, annotation_path(pods, annotation.key), message, annotation.remedy)
    if not requirements:
        return
    first = requirements[0]
    path = annotation_path(pods, first.key)
    others = other_vendors(pods)
    if others:
        yield Finding(
            "OtherMaker",
            path,
            f"{first.shown}: nodes of {' and '.join(others)} do not have the labels of NVIDIA's GPU Feature Discovery",
            f"Remove {first.key}, and select the nodes by their own labels.",
        )
        return
    yield from _check_terms(pods, requirements, path)
    contradictions = list(_contradictions(pods, requirements))
    yield from contradictions
    if not contradictions:
        yield from _check_nodes(pods, requirements, path, snapshot)


def _check_terms(pods: PodSet, requirements: Sequence[NodeRequirement], path: Path) -> Iterator[Finding]:
    grown = growth(pods, both(requirement.alternatives for requirement in requirements))
    # If all terms meet the requirements nothing is added: gpugate wrote them, and another rule may have multiplied them since.
    if grown.unmet and grown.terms > MOST_TERMS:
        met = f" + {grown.met} that require it already" if grown.met else ""
        yield Finding(
            "TooManyTerms",
            path,
            f"{grown.unmet} nodeSelectorTerms x {grown.alternatives} alternatives{met} = {grown.terms} > {MOST_TERMS}",
            "Write only the major version, or fewer nodeSelectorTerms.",
            measure=grown.terms,
        )


def _contradictions(pods: PodSet, requirements: Sequence[NodeRequirement]) -> Iterator[Finding]:
    """Yield findings for requirements that the pods' own selectors exclude."""
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    terms = [term for term in required_terms(pods) if term.get("matchExpressions") or term.get("matchFields")]
    for requirement in requirements:
        remedy = f"Remove one of them; gpugate writes the affinity for {requirement.key}."
        for key in requirement.labels:
            value = selector.get(key)
            if type(value) is str and all(
                any(expression["key"] == key and not fits(expression, value) for expression in alternative)
                for alternative in requirement.alternatives
            ):
                message = f"{requirement.shown} and the nodeSelector {key}: {value} exclude each other"
                yield Finding("Contradicts", pods.field("nodeSelector", key), message, remedy)
        if terms and all(
            all(any(rules_out(term, expression) for expression in alternative) for alternative in requirement.alternatives)
            for term in terms
        ):
            message = f"{requirement.shown} and the required node affinity on {' and '.join(requirement.labels)} exclude each other"
            yield Finding("Contradicts", pods.field("affinity", "nodeAffinity"), message, remedy)


def _check_nodes(pods: PodSet, requirements: Sequence[NodeRequirement], path: Path, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        yield not_synced("NodesUnknown", path, "the nodes", "whether one of them matches the pods")
        return
    candidates = node_candidates(pods, snapshot)
    shapes = candidates.with_resource
    if not shapes:
        return
    shown = " and ".join(requirement.shown for requirement in requirements)
    matching = [shape for shape in shapes if all(_matches(shape, requirement) for requirement in requirements)]
    if not matching:
        yield _none_matches(pods, requirements, shapes, path)
    elif not any(shape in candidates.matching for shape in matching):
        yield Finding(
            "ShutOut",
            path,
            f"{shown}: {_inventory(matching)} would match, but the pods' nodeSelector or affinity excludes them",
            "Remove what excludes them from the nodeSelector or affinity, or request another GPU.",
        )
    for requirement in requirements:
        missed = _almost_enough(shapes, requirement) if requirement.key == MEMORY else ()
        if missed:
            yield Finding(
                "AlmostEnough",
                annotation_path(pods, MEMORY),
                f"{requirement.shown} excludes {_inventory(missed)}: a vendor's GB is 10^9 bytes, a Gi is 2^30",
                f"Write {MEMORY}: {requirement.written.removesuffix('i')} to include them.",
            )


def _none_matches(pods: PodSet, requirements: Sequence[NodeRequirement], shapes: Sequence[NodeShape], path: Path) -> Finding:
    shown = " and ".join(requirement.shown for requirement in requirements)
    unlabelled = [shape for shape in shapes if _may_match(shape, requirements)]
    nodes = f"{_node_count(shapes)} nodes that offer {' and '.join(sorted(pods.accelerators()))}"
    if unlabelled:
        labels = {label for requirement in requirements for label in requirement.labels}
        missing = sorted(label for label in labels if any(label not in shape.labels for shape in unlabelled))
        versions = any(requirement.key in {DRIVER, CUDA} for requirement in requirements)
        other = ", or set driverLabels in the policy if the nodes have the other generation of labels" if versions else ""
        return Finding(
            "LabelsMissing",
            path,
            f"{shown}: gpugate cannot tell which nodes match, because {_node_count(unlabelled)} of the {nodes} lack"
            f" {' and '.join(missing)}",
            f"Run NVIDIA's GPU Feature Discovery, which writes the labels{other}.",
            rests_on=("nodes",),
        )
    return Finding(
        "NoNodeMatches",
        path,
        f"{shown}: none of the {nodes} matches; the known nodes are {_inventory(shapes)}",
        "Request GPUs that the nodes have, or set noNodeMatches: Warn in the policy if other nodes will be added.",
    )


def _node_count(shapes: Iterable[NodeShape]) -> int:
    return sum(len(shape.nodes) for shape in shapes)


def _matches(shape: NodeShape, requirement: NodeRequirement) -> bool:
    """Return whether a node of ``shape`` may meet the requirement."""
    return any(
        all(meets(expression, shape.labels.get(str(expression["key"]), _ABSENT)) for expression in alternative)
        for alternative in requirement.alternatives
    )


def _may_match(shape: NodeShape, requirements: Sequence[NodeRequirement]) -> bool:
    """Return whether ``shape`` lacks labels of some requirements, and meets all others."""
    labelled = [
        requirement
        for requirement in requirements
        if not any(None in shape.labels.get(label, _ABSENT) for label in requirement.labels)
    ]
    return len(labelled) < len(requirements) and all(_matches(shape, requirement) for requirement in labelled)


def _almost_enough(shapes: Iterable[NodeShape], memory: NodeRequirement) -> list[NodeShape]:
    """Return the shapes whose GPUs would have the required memory if its Gi were GB."""
    label = memory.labels[0]
    bound = int(memory.alternatives[0][0]["values"][0])
    return [
        shape
        for shape in shapes
        if memory.written.endswith("i")
        and not _matches(shape, memory)
        and any(value and value.isdigit() and int(value) * GIB > bound * _GB for value in shape.labels.get(label, _ABSENT))
    ]


def _inventory(shapes: Iterable[NodeShape]) -> str:
    """Return the GPUs of ``shapes``, most nodes first: ``8 x NVIDIA-H100-80GB-HBM3 (81559Mi, compute 9.0, driver 550.54)``."""
    counts: dict[str, int] = {}
    for shape in shapes:
        name = _described(shape)
        counts[name] = counts.get(name, 0) + len(shape.nodes)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = [f"{count} x {name}" for name, count in ranked[:_SHOWN]]
    return ", ".join(listed) + (f" and {len(ranked) - _SHOWN} more kinds" if len(ranked) > _SHOWN else "")


def _described(shape: NodeShape) -> str:
    facts = []
    memory = _label_values(shape, MEMORY_LABEL)
    if memory:
        facts.append(f"{' or '.join(memory)}Mi")
    old, new = DRIVER_LABELS["Old"], DRIVER_LABELS["New"]
    for name, labels in (("compute", COMPUTE_LABELS), ("driver", old if old[0] in shape.labels else new)):
        version = _version(shape, labels)
        if version:
            facts.append(f"{name} {version}")
    return f"{shape.title} ({', '.join(facts)})" if facts else shape.title


def _version(shape: NodeShape, labels: Sequence[str]) -> str:
    """Return the version in ``labels``: only the major versions if nodes differ, since the other parts may not belong to them."""
    parts = [values for values in (_label_values(shape, label) for label in labels) if values]
    if any(len(values) > 1 for values in parts):
        return " or ".join(parts[0])
    return ".".join(values[0] for values in parts)


def _label_values(shape: NodeShape, label: str) -> list[str]:
    return sorted(value for value in shape.labels.get(label, ()) if value)
