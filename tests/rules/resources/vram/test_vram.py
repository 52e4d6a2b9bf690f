"""What a workload says of its accelerators' memory, the formula for a model, and the memory of cards."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.engine.engine import decide
from gpugate.policies.kube.quantity import MIB
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.rules.resources.vram.estimate import (
    PARAMETERS,
    PRECISION,
    SPLIT,
    VRAM,
    HeadroomParams,
    show_gb,
    vram_request,
    vram_statement,
)
from gpugate.policies.scheduling.gpu_cards import MEMORY_LABEL, card_of
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from tests.shared import strategies

GUIDE = HeadroomParams()
GB = 10**9


def workload(annotations: dict[str, str], gpus: int = 1, **metadata: Any) -> Workload:
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]}
    root = {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": annotations, **metadata}, "spec": spec}
    kind = kind_of("v1", "Pod")
    assert kind is not None
    return open_workload(kind, root, EMPTY_SNAPSHOT)


def needed(annotations: dict[str, str], gpus: int = 1) -> tuple[int, int]:
    """Bytes on each accelerator: of the weights, and with the least headroom."""
    work = workload(annotations, gpus)
    stated = vram_statement(work)
    assert stated is not None
    assert stated.problem is None
    need = vram_request(work, work.pod_sets[0], stated, GUIDE)
    return need.floor, need.least


def test_the_guides_own_sum_for_seven_billion_parameters_comes_out() -> None:
    assert needed({PARAMETERS: "7B"}) == (14 * GB, 18 * GB)


@pytest.mark.parametrize(
    ("precision", "weights"),
    [("fp32", 280), ("bf16", 140), ("fp16", 140), ("FP16", 140), ("fp8", 70), ("int8", 70), ("int4", 35)],
)
def test_the_weights_go_by_the_bytes_of_a_parameter(precision: str, weights: int) -> None:
    assert needed({PARAMETERS: "70B", PRECISION: precision})[0] == weights * GB


@pytest.mark.parametrize(
    ("written", "parameters"),
    [("350M", 350 * 10**6), ("1.5B", 1500 * 10**6), ("70b", 70 * GB), ("1T", 10**12), ("7000000000", 7 * GB), ("7 B", 7 * GB)],
)
def test_numbers_of_parameters_are_read_in_decimal_units(written: str, parameters: int) -> None:
    assert needed({PARAMETERS: written})[0] == 2 * parameters


@pytest.mark.parametrize("written", ["", "B", "8x7B", "-7B", "7Bi", "0B", "7e9", "1" * 16, "\u0667B", "7B\n", "1." + "0" * 80])
def test_what_is_no_number_of_parameters_is_told(written: str) -> None:
    stated = vram_statement(workload({PARAMETERS: written}))
    assert stated is not None
    assert stated.problem is not None
    assert stated.problem.key == PARAMETERS


@pytest.mark.parametrize("written", ["", "0", "-1", "2.0", "two", "\u00b2", "1" * 6])
def test_what_is_no_split_is_told(written: str) -> None:
    stated = vram_statement(workload({PARAMETERS: "7B", SPLIT: written}))
    assert stated is not None
    assert stated.problem is not None
    assert stated.problem.key == SPLIT


def test_a_split_that_is_stated_counts_and_not_the_gpus_of_the_pod() -> None:
    assert needed({PARAMETERS: "70B", SPLIT: "4"}, gpus=8) == (35 * GB, 45 * GB)
    assert needed({PARAMETERS: "70B"}, gpus=8) == (17_500_000_000, 22_500_000_000)


def test_memory_that_does_not_divide_is_rounded_up() -> None:
    assert needed({PARAMETERS: "1", PRECISION: "int4", SPLIT: "3"}) == (1, 1)


def test_stated_memory_is_that_of_each_gpu_and_needs_no_headroom() -> None:
    assert needed({VRAM: "40Gi", PARAMETERS: "70B", SPLIT: "8"}, gpus=8) == (40 << 30, 40 << 30)


@pytest.mark.parametrize(("size", "shown"), [(14 * GB, "14GB"), (3.5e9, "3.5GB"), (85_899_345_920, "85.9GB"), (700e6, "700MB")])
def test_sizes_are_shown_as_guides_write_them(size: float, shown: str) -> None:
    assert show_gb(size) == shown


def test_headroom_that_is_less_for_comfort_than_at_least_is_no_policy() -> None:
    with pytest.raises(ValueError, match="least 9 is above most 8"):
        HeadroomParams(least=9)


def card(labels: dict[str, str], resource: str = "nvidia.com/gpu") -> tuple[int | None, int]:
    """MiB of the card that a node with these labels has, and how many pods share it."""
    (shape,) = snapshot_from_objects([strategies.node_like("n", labels, **{resource: "4"})]).shapes
    found = card_of(shape, resource)
    return (None if found.memory is None else found.memory // MIB), found.replicas


@pytest.mark.parametrize("written", ["", "0", "unknown", "15360Mi", "-1", "1" * 13])
def test_a_label_that_is_no_number_above_zero_says_nothing(written: str) -> None:
    assert card({MEMORY_LABEL: written}) == (None, 1)


def test_replicas_count_only_where_cards_are_shared() -> None:
    labels = {MEMORY_LABEL: "15360", "nvidia.com/gpu.replicas": "4"}
    assert card(labels) == (15360, 1)
    assert card({**labels, "nvidia.com/gpu.sharing-strategy": "none"}) == (15360, 1)
    assert card({**labels, "nvidia.com/gpu.sharing-strategy": "mps"}) == (15360, 4)
    assert card({**labels, "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "0"}) == (15360, 1)
    assert card(labels, "nvidia.com/gpu.shared") == (15360, 4)


@pytest.mark.parametrize(
    ("resource", "mebibytes"),
    [
        ("nvidia.com/mig-1g.5gb", 5 * 1024),
        ("nvidia.com/mig-1c.3g.20gb", 20 * 1024),
        ("nvidia.com/mig-1g.10gb.me", 10 * 1024),
        ("nvidia.com/mig-1g.5gb.shared", 5 * 1024),
        ("nvidia.com/gpu-1g5gb", 5 * 1024),
        ("amd.com/gpu", None),
        ("nvidia.com/gpu.shared", None),
    ],
)
def test_a_slice_without_label_goes_by_its_name(resource: str, mebibytes: int | None) -> None:
    assert card({}, resource)[0] == mebibytes


def test_the_label_of_a_slice_counts_before_its_name_and_the_whole_cards_never() -> None:
    labels = {MEMORY_LABEL: "40960", "nvidia.com/mig-1g.5gb.memory": "4864"}
    assert card(labels, "nvidia.com/mig-1g.5gb") == (4864, 1)
    assert card({MEMORY_LABEL: "40960"}, "nvidia.com/mig-1g.5gb") == (5120, 1)


def test_another_rules_affinity_that_shuts_out_unlabelled_nodes_leaves_nothing_for_a_second_decision() -> None:
    aligned = {"gpugate.io/numa-aligned": "true"}
    snapshot = snapshot_from_objects(
        [
            strategies.node_like("old", {}, **{"nvidia.com/gpu": "8"}),
            strategies.node_like("small", {**aligned, MEMORY_LABEL: "15360"}, **{"nvidia.com/gpu": "8"}),
            strategies.node_like("large", {**aligned, MEMORY_LABEL: "81920"}, **{"nvidia.com/gpu": "8"}),
        ]
    )
    spec = {"rules": {"numa": {"alignedNodes": {"key": "gpugate.io/numa-aligned"}, "affinity": "Required"}, "vram": {}}}
    rules = PolicySet([parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": spec})]).bind(
        {}, {}
    )
    work = workload({VRAM: "40Gi"})
    assert decide(work, rules, snapshot).patch != []
    assert decide(open_workload(work.kind, work.root, snapshot), rules, snapshot).patch == []
