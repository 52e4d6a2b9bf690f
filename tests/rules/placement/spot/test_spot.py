"""Spot capacity: what marks it, what is asked of nodes, and which checkpoints outlive a node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.records.common import CAPACITY
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.kube.taints import is_never_tolerated
from gpugate.policies.rules.placement.spot.checkpoints import is_readable, loss_of
from gpugate.policies.scheduling.node_selection import meets
from gpugate.policies.scheduling.spot_capacity import CLOUDS, chosen_by_hand, every_label, notice_of, off_spot, on_spot
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.open import open_workload

SPOT_LABELS = every_label(())
capacities = st.dictionaries(
    st.sampled_from(sorted(CAPACITY)), st.sampled_from(["spot", "SPOT", "true", "on-demand", "ON_DEMAND", "regular"]), max_size=3
)


def is_spot(node: dict[str, str]) -> bool:
    return any(node.get(key) == value for key, value in CAPACITY.items())


def met(alternatives: tuple[tuple[dict[str, Any], ...], ...], node: dict[str, str]) -> bool:
    return any(all(meets(part, frozenset({node.get(part["key"])})) for part in parts) for parts in alternatives)


def a_pod(**spec: Any) -> Any:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}, "volumeMounts": spec.pop("mounts", [])}]
    root = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}
    return open_workload(POD, root, EMPTY_SNAPSHOT)


def test_the_clouds_are_those_by_which_capacity_is_told_everywhere() -> None:
    assert dict(SPOT_LABELS) == CAPACITY
    assert len(SPOT_LABELS) == len(CAPACITY)


def test_a_clouds_labels_begin_as_all_its_labels_do_and_no_taint_is_one_of_maintenance() -> None:
    for cloud in CLOUDS.values():
        assert all(key.startswith(cloud.marks) for key, _ in cloud.labels)
        assert not any(is_never_tolerated(taint.key, taint.value) for taint in cloud.taints)
        assert {taint.key for taint in cloud.taints} <= {key for key, _ in cloud.labels}


@given(capacities)
def test_a_node_is_on_spot_or_off_it(node: dict[str, str]) -> None:
    assert met(on_spot(SPOT_LABELS), node) == is_spot(node)
    assert met(off_spot(SPOT_LABELS), node) == (not is_spot(node))


def test_the_notice_is_the_shortest_of_those_that_are_known() -> None:
    assert notice_of((), ("EKS",)) == 120
    assert notice_of((), ("EKS", "Karpenter")) == 120
    assert notice_of(("cloud.google.com/gke-spot",), ()) == 30
    assert notice_of((), ("EKS", "AKS")) == 30
    assert notice_of((), ("Karpenter",)) is None
    assert notice_of((), ()) is None


TERMS: dict[str, tuple[list[dict[str, Any]], bool | None]] = {
    "spot alone": ([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}], True),
    "spot and another": ([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}], False),
    "not on demand": ([{"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["on-demand"]}], None),
    "on demand": ([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}], None),
    "no operator of its own": ([{"key": "karpenter.sh/capacity-type", "operator": "Exists"}], None),
}


@pytest.mark.parametrize("what", TERMS)
def test_what_pods_choose_by_their_affinity(what: str) -> None:
    expressions, only = TERMS[what]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    (pods,) = a_pod(affinity={"nodeAffinity": required}).pod_sets
    found = chosen_by_hand(pods, CAPACITY)
    assert (None if found is None else found.only) is only


READABLE = [
    "/work",
    "/work/run 7",
    "runs",
    "my-claim.v2",
    "s3://b",
    "gs://bucket/run",
    "abfss://c@a.dfs.windows.net/x",
    "none",
]
UNREADABLE = ["", "/", "//", "ftp://host/x", "s3://", "s3:///x", "Runs", "work/run", "a b", "/" + "x" * 2000]


@pytest.mark.parametrize("written", READABLE)
def test_a_checkpoint_may_be_written_so(written: str) -> None:
    assert is_readable(written)


@pytest.mark.parametrize("written", UNREADABLE)
def test_a_checkpoint_may_not_be_written_so(written: str) -> None:
    assert not is_readable(written)


VOLUMES: dict[str, bool] = {
    "persistentVolumeClaim": True,
    "nfs": True,
    "csi": True,
    "azureFile": True,
    "emptyDir": False,
    "ephemeral": False,
    "hostPath": False,
    "configMap": False,
    "image": False,
}


@pytest.mark.parametrize("source", VOLUMES)
def test_what_outlives_the_node(source: str) -> None:
    workload = a_pod(mounts=[{"name": "v", "mountPath": "/work/"}], volumes=[{"name": "v", source: {}}])
    assert (loss_of(workload, workload.pod_sets[0], "/work/run", ("x",)) is None) == VOLUMES[source]


def test_a_mount_beside_the_path_does_not_hold_it() -> None:
    workload = a_pod(mounts=[{"name": "v", "mountPath": "/work"}], volumes=[{"name": "v", "nfs": {}}])
    assert loss_of(workload, workload.pod_sets[0], "/workspace", ("x",)) is not None
    assert loss_of(workload, workload.pod_sets[0], "/work", ("x",)) is None


def test_a_mount_at_the_root_holds_everything() -> None:
    workload = a_pod(mounts=[{"name": "v", "mountPath": "/"}], volumes=[{"name": "v", "nfs": {}}])
    assert loss_of(workload, workload.pod_sets[0], "/any/where", ("x",)) is None
