"""The tables of names that somebody reads: they do not contradict themselves, and no name that is read is called a slip."""

from __future__ import annotations

import pytest

from gpugate.policies.rules.lifecycle.environment import variables
from gpugate.policies.rules.lifecycle.environment.variables import (
    NCCL_DOCUMENTED,
    NCCL_READ,
    has_known_prefix,
    replacement_for,
)
from gpugate.policies.rules.placement.node_terms import node_labels
from gpugate.policies.rules.placement.node_terms.node_labels import (
    DEPRECATED,
    MEMORY,
    PRESENT,
    PRODUCT,
    WRITTEN,
    intended_label,
    means_numa,
    names_cards,
    speaks_of_accelerators,
)

_KNOWN_VARIABLES = sorted(frozenset[str]().union(*(known for _, _, known in variables._FAMILIES)))


@pytest.mark.parametrize("name", _KNOWN_VARIABLES)
def test_nothing_is_said_of_a_variable_that_is_read(name: str) -> None:
    assert replacement_for(name) is None
    assert has_known_prefix(name) or name == "TP_SOCKET_IFNAME"


def test_what_is_written_instead_of_a_variable_is_read() -> None:
    instead = {*variables._MEANT.values(), *(proper for proper, _ in variables._FORMER.values())}
    assert instead <= set(_KNOWN_VARIABLES)


def test_no_variable_is_read_and_a_slip_or_given_up() -> None:
    assert {*variables._MEANT, *variables._FORMER}.isdisjoint(_KNOWN_VARIABLES)
    assert variables._MEANT.keys().isdisjoint(variables._FORMER)
    assert all(map(has_known_prefix, {*variables._MEANT, *variables._FORMER}))


def test_the_variables_of_nccl_are_those_of_its_guide_and_more() -> None:
    assert {"NCCL_TOPO_FILE", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_P2P_DISABLE"} <= NCCL_DOCUMENTED < NCCL_READ
    assert "NCCL_TOPOLOGY_FILE" not in NCCL_READ


@pytest.mark.parametrize("name", sorted(NCCL_DOCUMENTED))
def test_a_letter_too_many_is_told_where_there_are_enough_to_tell(name: str) -> None:
    told = replacement_for(f"{name}S")
    assert (told and told.name) == (name if len(name.rpartition("_")[2]) > 2 else None)


def test_what_is_written_instead_of_a_label_is_written_by_some_component() -> None:
    assert {*node_labels._MEANT.values(), *(proper for proper, _ in node_labels.DEPRECATED.values())} <= WRITTEN


def test_no_label_is_written_and_a_slip_or_given_up() -> None:
    assert {*node_labels._MEANT, *node_labels.DEPRECATED}.isdisjoint(WRITTEN)
    assert [key for key in node_labels._MEANT if key != key.lower()] == []


@pytest.mark.parametrize("key", sorted(WRITTEN))
def test_nothing_is_said_of_a_label_that_some_component_writes(key: str) -> None:
    assert intended_label(key) is None
    assert DEPRECATED.get(key) is None


@pytest.mark.parametrize(
    ("key", "proper"),
    [
        ("nvidia.com/gpu", PRESENT),
        ("nvidia.com/gpu.mem", MEMORY),
        ("nvidia.com/gpu.memory.total", None),
        ("nvidia.com/gpu.name", PRODUCT),
        ("nvidia.com/GPU.Product", PRODUCT),
        ("nvidia.com/gpu.deploy.dcgm-exporter", None),
        ("nvidia.com/mig-1g.5gb.count", None),
        ("example.com/gpu.mem", None),
        ("kubernetes.io/host", "kubernetes.io/hostname"),
        ("topology.kubernetes.io/zones", "topology.kubernetes.io/zone"),
        ("topology.kubernetes.io/rack", None),
        ("failure-domain.beta.kubernetes.io/zone", None),
    ],
)
def test_a_label_that_no_component_writes_is_told_for_what_is_meant(key: str, proper: str | None) -> None:
    assert intended_label(key) == proper


@pytest.mark.parametrize("key", ["topology.kubernetes.io/NUMANode", "numa", "example.com/numa-node"])
def test_a_label_is_meant_for_numa_nodes(key: str) -> None:
    assert means_numa(key)


@pytest.mark.parametrize(
    ("key", "speaks", "names"),
    [("accelerator", True, True), ("gpu-type", True, True), ("gpu-topology", True, False), ("zone", False, False)],
)
def test_what_a_label_speaks_of(key: str, speaks: bool, names: bool) -> None:
    assert (speaks_of_accelerators(key), names_cards(key)) == (speaks, names)
