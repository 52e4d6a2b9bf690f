"""Placement: the joined terms select exactly what both the pods' own terms and the annotations let them onto."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.kube.fields import clone
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.rules.placement.gpu_selection.mutate import (
    COMPUTE_LABELS,
    DRIVER_LABELS,
    FAMILIES,
    Labels,
    at_least,
    memory_labels,
    requirements_of,
)
from gpugate.policies.rules.placement.gpu_selection.products import is_name, products_called
from gpugate.policies.scheduling.node_selection import meets
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.node_affinity import both, fits, growth, implies, require, required_terms, rules_out
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload
from tests.shared.builders import bind, container, decided, pod, pods_of

_LABELS: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S-SHARED", "Tesla-T4"),
    "nvidia.com/gpu.family": ("hopper", "ada-lovelace", "turing"),
    "nvidia.com/gpu.memory": ("81559", "46068", "15360"),
    "nvidia.com/gpu.compute.major": ("7", "8", "9", "10"),
    "nvidia.com/gpu.compute.minor": ("0", "5", "6", "9"),
    "nvidia.com/cuda.driver.major": ("470", "550", "570"),
    "nvidia.com/cuda.driver.minor": ("06", "54", "124"),
    "nvidia.com/cuda.driver.rev": ("", "02", "15"),
    "zone": ("a", "b"),
}
_SAID: dict[str, tuple[str, ...]] = {
    "gpugate.io/gpu": ("h100", "l40s,t4", "NVIDIA-H100-80GB-HBM3"),
    "gpugate.io/gpu-family": ("hopper", "ada,turing"),
    "gpugate.io/min-gpu-memory": ("40Gi", "80G", "80Gi"),
    "gpugate.io/min-compute": ("8.0", "8.6", "9"),
    "gpugate.io/min-driver": ("550", "550.54", "470.06.1", "550.54.15"),
}

nodes = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in _LABELS.items()})
said = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in _SAID.items()})


@st.composite
def expressions(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(_LABELS)))
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    if operator in {"Gt", "Lt"}:
        return {"key": key, "operator": operator, "values": [str(draw(st.sampled_from([5, 7, 8, 54, 549, 40959])))]}
    values = draw(st.lists(st.sampled_from(_LABELS[key]), min_size=1, unique=True))
    return {"key": key, "operator": operator, "values": values}


terms = st.lists(
    st.one_of(
        st.just({}),
        st.builds(lambda found: {"matchExpressions": found}, st.lists(expressions(), min_size=1, max_size=3)),
        st.just({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["the-node"]}]}),
    ),
    max_size=3,
)


def selects(found: list[dict[str, Any]], node: dict[str, str]) -> bool:
    """What the scheduler makes of a node affinity's terms."""

    def met(term: dict[str, Any]) -> bool:
        own, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
        if not own and not fields:
            return False
        return all(meets(one, frozenset({node.get(one["key"])})) for one in own) and all(
            meets(one, frozenset({"the-node"})) for one in fields
        )

    return any(map(met, found))


def a_pod(annotations: dict[str, str], own: list[dict[str, Any]]) -> tuple[Workload, PodSet]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    if own:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": clone(own)}}
        spec["affinity"] = {"nodeAffinity": required}
    root = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}, "spec": spec}
    workload = open_workload(POD, root, EMPTY_SNAPSHOT)
    return workload, workload.pod_sets[0]


def wanted_of(annotations: dict[str, str]) -> list[Any]:
    workload, pods = a_pod(annotations, [])
    wanted, bad = requirements_of(workload, pods, Labels("Old", shared=False, products=frozenset()))
    assert not bad
    return wanted


def _version(node: dict[str, str], labels: tuple[str, ...]) -> list[int] | None:
    if not node.get(labels[0]):
        return None
    return [int(node.get(label) or -1) for label in labels]


def asked(annotations: dict[str, str], node: dict[str, str]) -> bool:
    """The meaning of the annotations, written down without any operator."""
    product, family = node.get("nvidia.com/gpu.product", ""), node.get("nvidia.com/gpu.family", "")
    sizes = {"40Gi": 40 * 2**30, "80G": 80 * 10**9, "80Gi": 80 * 2**30}
    for key, text in annotations.items():
        words = [one.lower() for one in text.split(",")]
        if key == "gpugate.io/gpu":
            met = any(word in product.lower() for word in words) and "SHARED" not in product
        elif key == "gpugate.io/gpu-family":
            met = bool(family) and any(family.startswith(word) for word in words)
        elif key == "gpugate.io/min-gpu-memory":
            met = int(node.get("nvidia.com/gpu.memory", "0")) * 2**20 >= sizes[text]
        else:
            labels = COMPUTE_LABELS if key == "gpugate.io/min-compute" else DRIVER_LABELS["Old"]
            met = _at_least(_version(node, labels), [int(part) for part in text.split(".")])
        if not met:
            return False
    return True


def _at_least(version: list[int] | None, wanted: list[int]) -> bool:
    if version is None:
        return False
    while len(wanted) > 1 and not wanted[-1]:
        wanted = wanted[:-1]
    for has, wants in zip(version, wanted, strict=False):
        if has != wants:
            return has > wants
    return True


@settings(max_examples=400)
@given(said, terms, nodes)
@example(
    {"gpugate.io/min-compute": "8.6"}, [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}], {"zone": "a"}
)
def test_joined_terms_select_exactly_the_nodes_that_meet_both(
    annotations: dict[str, str], own: list[dict[str, Any]], node: dict[str, str]
) -> None:
    workload, pods = a_pod(annotations, own)
    wanted = wanted_of(annotations)
    if not wanted:
        return
    alternatives = both(one.alternatives for one in wanted)
    draft = PatchBuilder(workload.root)
    for edit in list(require(pods, alternatives, "a note")):
        draft.apply(edit)
    after = required_terms(pods)
    before = not own or selects(own, node)
    assert selects(after, node) == (before and asked(annotations, node))
    assert list(require(pods, alternatives, "a note")) == [], "asking again asks for more"
    assert len([one for one in after if one]) <= growth(pods, alternatives).terms


@given(said, nodes)
def test_the_expressions_mean_what_the_annotations_say(annotations: dict[str, str], node: dict[str, str]) -> None:
    met = all(
        any(all(meets(part, frozenset({node.get(part["key"])})) for part in parts) for parts in one.alternatives)
        for one in wanted_of(annotations)
    )
    assert met == asked(annotations, node)


@given(expressions(), expressions(), nodes)
def test_what_implies_another_is_never_met_without_it(one: dict[str, Any], other: dict[str, Any], node: dict[str, str]) -> None:
    other = {**other, "key": one["key"]}
    value = frozenset({node.get(one["key"])})
    term = {"matchExpressions": [one]}
    if implies(term, other) and meets(one, value):
        assert meets(other, value)
    if other["operator"] in {"In", "NotIn", "Exists", "Gt"} and rules_out(term, other):
        assert not (meets(one, value) and meets(other, value))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=3), st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_at_least_is_the_order_of_versions(wanted: list[int], has: list[int]) -> None:
    labels = ("one", "two", "three")
    found = at_least(wanted, labels)
    met = any(all(fits(part, str(has[labels.index(part["key"])])) for part in parts) for parts in found)
    padded = [*wanted, 0, 0][:3]
    assert met == (has >= padded)
    assert len(found) <= len(wanted)


NAMES = {
    "h100": {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H100-PCIe"},
    "H100-SXM": {"NVIDIA-H100-80GB-HBM3"},
    "h100-80gb": {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"},
    "h100-nvl": {"NVIDIA-H100-NVL"},
    "a100-80gb": {"NVIDIA-A100-80GB-PCIe", "NVIDIA-A100-SXM4-80GB"},
    "a100-40gb": {"NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-SXM4-40GB"},
    "l4": {"NVIDIA-L4"},
    "l40": {"NVIDIA-L40"},
    "l40s": {"NVIDIA-L40S"},
    "a10": {"NVIDIA-A10"},
    "a10g": {"NVIDIA-A10G"},
    "t4": {"Tesla-T4"},
    "v100-32gb": {"Tesla-V100-PCIE-32GB", "Tesla-V100-SXM2-32GB"},
    "gh200": {"NVIDIA-GH200-120GB", "NVIDIA-GH200-144G-HBM3e", "NVIDIA-GH200-480GB"},
    "b200": {"NVIDIA-B200"},
    "rtx-4090": {"NVIDIA-GeForce-RTX-4090"},
    "rtx-6000-ada": {"NVIDIA-RTX-6000-Ada-Generation"},
    "NVIDIA-H100-80GB-HBM3": {"NVIDIA-H100-80GB-HBM3"},
    "h300": set(),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_short_name_means_these_cards(name: str) -> None:
    assert set(products_called(name, (), shared=False)) == NAMES[name]
    shared = {f"{product}-SHARED" for product in NAMES[name]}
    assert set(products_called(name, (), shared=True)) == NAMES[name] | shared
    assert set(products_called(f"{name}-shared", (), shared=False)) == shared


def test_no_name_but_shared_means_no_card() -> None:
    assert products_called("shared", ("NVIDIA-L4-SHARED",), shared=True) == []


def test_every_known_card_has_a_name_that_a_label_may_have() -> None:
    everything = products_called("NVIDIA", (), shared=True) + products_called("Tesla", (), shared=True)
    assert len(everything) > 80
    assert all(map(is_name, everything))


def test_the_memory_of_a_slice_is_in_a_label_of_its_own() -> None:
    assert memory_labels({"nvidia.com/gpu": 1}) == memory_labels({"nvidia.com/gpu.shared": 1}) == ("nvidia.com/gpu.memory",)
    assert memory_labels({"nvidia.com/mig-1g.10gb": 1}) == ("nvidia.com/mig-1g.10gb.memory",)
    assert memory_labels({}) == ("nvidia.com/gpu.memory",)


def test_families_are_those_that_gpu_feature_discovery_names() -> None:
    assert {"turing", "ampere", "ada-lovelace", "hopper", "blackwell"} <= set(FAMILIES)


_ALIKE = {"gpugate.io/min-compute": "8.6", "gpugate.io/min-driver": "550.54.15", "gpugate.io/min-cuda": "12.4"}


def _in_zones(number: int) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [str(at)]}]} for at in range(number)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_terms_that_another_rule_multiplied_are_not_held_against_what_is_asked_for_already() -> None:
    annotations = {**_ALIKE, "gpugate.io/spot": "required", "gpugate.io/checkpoint": "s3://bucket/run"}
    root = pod(container(), annotations=annotations, affinity=_in_zones(2))
    decision = decided(root, bind({"placement": {}, "spot": {}}, mode="Enforce"))
    platforms = 5
    assert len(required_terms(pods_of(root))) == 2 * 12 * platforms
    assert "placement" not in {one.rule for one in decision.findings}


def test_terms_that_meet_what_is_asked_for_are_left_out_of_the_sum() -> None:
    affinity = _in_zones(6)
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    newer = [
        ("nvidia.com/gpu.compute.major", "8"),
        ("nvidia.com/cuda.driver.major", "550"),
        ("nvidia.com/cuda.runtime.major", "12"),
    ]
    terms.append({"matchExpressions": [{"key": key, "operator": "Gt", "values": [value]} for key, value in newer]})
    decision = decided(pod(container(), annotations=_ALIKE, affinity=affinity), bind({"placement": {}}, mode="Enforce"))
    found = [one.finding.message for one in decision.findings if one.finding.reason == "TooManyTerms"]
    assert found == ["6 nodeSelectorTerms x 12 alternatives + 1 that require it already = 73 > 64"]
