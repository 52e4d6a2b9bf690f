"""Readers of cluster objects: what each record keeps, in both versions where there are two."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.nodes import node_of, node_topology_of
from gpugate.policies.cluster.records.common import Selector, Taint, Toleration, selector_in
from gpugate.policies.cluster.records.devices import device_class_of, runtime_class_of
from gpugate.policies.cluster.records.kueue import (
    Quota,
    Transformation,
    cluster_queue_of,
    cohort_of,
    flavor_of,
    kueue_configuration_of,
    kueue_workload_of,
    local_queue_of,
    priority_class_of,
    topology_of,
)
from gpugate.policies.cluster.records.namespaces import limit_range_of, namespace_of, resource_quota_of
from gpugate.policies.cluster.records.pod_groups import GroupKey, pod_group_of
from gpugate.policies.cluster.records.pods import capacity_of, pod_record_of
from gpugate.policies.kube.fields import MalformedError
from tests.shared.builders import container, node, opened, pod

_GIB = 1 << 30


def cluster_queue(**spec: Any) -> dict[str, Any]:
    resources = [
        {"name": "cpu", "nominalQuota": "1500m"},
        {"name": "nvidia.com/gpu", "nominalQuota": 16, "borrowingLimit": "8", "lendingLimit": "4"},
    ]
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": resources}]}
    return {
        "metadata": {"name": "team-a"},
        "spec": {"resourceGroups": [group], "namespaceSelector": {}, **spec},
        "status": {
            "pendingWorkloads": 3,
            "flavorsReservation": [{"name": "h100", "resources": [{"name": "cpu", "total": "2", "borrowed": "0"}]}],
            "conditions": [{"type": "Active", "status": "False", "message": "no flavor"}],
        },
    }


def test_a_cluster_queue_keeps_quota_cohort_reservation_and_why_it_is_not_active() -> None:
    found = cluster_queue_of(cluster_queue(cohort="old"))
    assert found.groups[0].flavors == (("h100", {"cpu": Quota(1500), "nvidia.com/gpu": Quota(16, 8, 4)}),)
    assert (found.cohort, found.covered, found.pending, found.inactive) == ("old", {"cpu", "nvidia.com/gpu"}, 3, "no flavor")
    assert found.reserved == {("h100", "cpu"): 2000}
    assert cluster_queue_of(cluster_queue(cohortName="new")).cohort == "new"


def test_a_cluster_queue_without_a_namespace_selector_admits_from_none_and_an_empty_one_from_all() -> None:
    assert cluster_queue_of({"metadata": {"name": "q"}, "spec": {}}).namespaces is None
    every = cluster_queue_of(cluster_queue()).namespaces
    assert every is not None
    assert every.matches({})


@pytest.mark.parametrize(("policy", "stopped"), [(None, False), ("None", False), ("Hold", True), ("HoldAndDrain", True)])
def test_queues_say_whether_they_are_stopped(policy: str | None, stopped: bool) -> None:
    assert cluster_queue_of(cluster_queue(stopPolicy=policy)).stopped is stopped
    queue = {"metadata": {"name": "q", "namespace": "a"}, "spec": {"clusterQueue": "c", "stopPolicy": policy}}
    assert local_queue_of(queue) == ("a", "q", "c", stopped)


def test_cohorts_flavors_topologies_and_priorities_are_read() -> None:
    assert cohort_of({"metadata": {"name": "ml"}, "spec": {"parentName": "all"}})[:2] == ("ml", "all")
    spec = {
        "nodeLabels": {"gpu": "h100"},
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "topologyName": "racks",
    }
    flavor = flavor_of({"metadata": {"name": "h100"}, "spec": spec})
    assert flavor == (
        "h100",
        {"gpu": "h100"},
        (Taint("spot", "true", "NoSchedule"),),
        (Toleration("spot", "Exists", "", ""),),
        "racks",
    )
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]
    assert topology_of({"metadata": {"name": "racks"}, "spec": {"levels": levels}}).levels == ("block", "rack")
    assert priority_class_of({"metadata": {"name": "high"}, "value": 1000, "globalDefault": True}) == ("high", 1000, True, True)
    assert not priority_class_of({"metadata": {"name": "last"}, "value": 1, "preemptionPolicy": "Never"}).preempts


def test_a_workload_shows_whom_it_stands_for_and_how_far_it_is() -> None:
    conditions = [{"type": "QuotaReserved", "status": "True"}, {"type": "Finished", "status": "False"}]
    obj = {"metadata": {"name": "w", "ownerReferences": [{"uid": "job"}]}, "status": {"conditions": conditions}}
    assert kueue_workload_of(obj) == (("job",), True, False, False)


def test_a_workload_of_multikueue_has_the_label_of_its_origin() -> None:
    metadata = {"name": "w", "labels": {"kueue.x-k8s.io/multikueue-origin": "hub"}}
    assert kueue_workload_of({"metadata": metadata}).dispatched is True


def test_kueues_configuration_says_which_namespaces_and_kinds_of_others_it_manages() -> None:
    found = kueue_configuration_of({"integrations": {"externalFrameworks": ["Foo.v1.example.com", 5]}})
    assert ("example.com", "Foo") in found.external
    assert not found.namespaces.matches({"kubernetes.io/metadata.name": "kueue-system"})
    assert found.namespaces.matches({"kubernetes.io/metadata.name": "team-a"})
    found = kueue_configuration_of({"managedJobsNamespaceSelector": {"matchLabels": {"kueue": "yes"}}})
    assert [found.namespaces.matches(labels) for labels in ({"kueue": "yes"}, {"kueue": "no"})] == [True, False]
    assert kueue_configuration_of({"managedJobsNamespaceSelector": {}}).namespaces.matches({})


def test_kueues_configuration_says_what_is_counted_otherwise() -> None:
    resources = {
        "excludeResourcePrefixes": ["example.com/"],
        "transformations": [
            {"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"credits": "10"}},
            {"input": "cpu"},
        ],
    }
    found = kueue_configuration_of({"resources": resources, "integrations": {"frameworks": ["batch/job", "pod"]}})
    assert found.excluded == ("example.com/",)
    assert found.transformations == (
        Transformation("cpu", False, {}),
        Transformation("nvidia.com/mig-1g.5gb", True, {"credits": 10}),
    )
    assert found.frameworks == {"batch/job", "pod"}


def test_limit_ranges_and_quotas_are_read_with_their_units_and_scopes() -> None:
    item = {"type": "Container", "max": {"memory": "64Gi", "cpu": "500m"}, "maxLimitRequestRatio": {"memory": "1.5"}}
    limit = limit_range_of({"metadata": {"name": "l", "namespace": "a"}, "spec": {"limits": [item]}}).limits[0]
    assert (limit.max, limit.ratios) == ({"memory": 64 * _GIB, "cpu": 500}, {"memory": "1.5"})
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    spec = {
        "hard": {"limits.cpu": "2", "pods": "4"},
        "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [expression]},
    }
    quota = resource_quota_of({"metadata": {"name": "q", "namespace": "a"}, "spec": spec, "status": {"used": {"limits.cpu": "1"}}})
    assert (quota.hard, quota.used) == ({"limits.cpu": 2000, "pods": 4}, {"limits.cpu": 1000})
    assert [(one.key, one.operator, sorted(one.values)) for one in quota.scopes] == [
        ("NotTerminating", "Exists", []),
        ("PriorityClass", "In", ["high"]),
    ]


def test_a_runtime_class_has_overhead_and_scheduling() -> None:
    obj = {
        "metadata": {"name": "kata"},
        "overhead": {"podFixed": {"memory": "120Mi", "cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "value": "x"}]},
    }
    found = runtime_class_of(obj)
    assert found == ("kata", {"memory": 120 << 20, "cpu": 250}, {"kata": "yes"}, (Toleration("kata", "Equal", "x", ""),))


def test_a_device_class_of_nvidias_driver_stands_for_a_gpu_whatever_its_name() -> None:
    selector = {"cel": {"expression": 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"'}}
    large = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "large"},
        "spec": {"selectors": [selector]},
    }
    assert device_class_of(large).is_gpu
    assert not device_class_of({"metadata": {"name": "nic"}, "spec": {}}).is_gpu
    request = {"name": "gpu", "exactly": {"deviceClassName": "large"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    root = pod(
        container(gpus=None) | {"resources": {"claims": [{"name": "gpu"}]}},
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}],
    )
    assert opened(root, snapshot=snapshot_from_objects([claim, large])).pod_sets[0].gpu_claims == {"gpu"}
    assert opened(root, snapshot=snapshot_from_objects([claim])).pod_sets[0].gpu_claims == set()


@pytest.mark.parametrize(
    ("api_version", "spec", "wanted"),
    [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 4}, ("Coscheduling", "a", "g", 4, "Running")),
        ("scheduling.volcano.sh/v1beta1", {"minMember": 2}, ("Volcano", "a", "g", 2, "Running")),
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 3}}}, ("Kubernetes", "a", "g", 3, "Running")),
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"basic": {}}}, ("Kubernetes", "a", "g", None, "Running")),
    ],
)
def test_pod_groups_of_every_scheduler_are_read(api_version: str, spec: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    obj = {"apiVersion": api_version, "metadata": {"name": "g", "namespace": "a"}, "spec": spec, "status": {"phase": "Running"}}
    assert pod_group_of(obj) == (*wanted, False, ())


def test_a_pod_group_says_who_made_it_and_what_it_goes_with() -> None:
    owners = [{"uid": "u-1", "kind": "Job"}, {"uid": "u-2", "kind": "Pod"}]
    metadata = {"name": "g", "labels": {"app.kubernetes.io/managed-by": "gpugate"}, "ownerReferences": owners}
    found = pod_group_of({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "metadata": metadata})
    assert (found.managed, found.owners) == (True, ("u-1", "u-2"))


@pytest.mark.parametrize(
    ("metadata", "spec", "wanted"),
    [
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}, {}, GroupKey("Kueue", "g")),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, {}, GroupKey("Coscheduling", "g")),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}}, {}, GroupKey("Coscheduling", "g")),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {}, GroupKey("Volcano", "g")),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, GroupKey("Kubernetes", "g")),
        ({"annotations": {"gpugate.io/gang-name": "g"}}, {}, GroupKey("gpugate", "g")),
        ({"annotations": {"pod-group-name": "g"}}, {"schedulerName": "kai-scheduler"}, GroupKey("KAI", "g")),
        ({"annotations": {"pod-group-name": "g"}}, {}, None),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": ""}}, {}, None),
    ],
)
def test_the_group_of_a_pod_is_found_in_every_system(
    metadata: dict[str, Any], spec: dict[str, Any], wanted: GroupKey | None
) -> None:
    made = pod(container(), **spec)
    made["metadata"] |= metadata
    found = pod_record_of(made)
    assert found is not None
    assert found.group == wanted


def test_a_pod_counts_init_containers_sidecars_and_overhead_as_the_scheduler_does() -> None:
    made = pod(
        container(gpus=1, memory="10Gi"),
        nodeName="n1",
        initContainers=[
            container("proxy", gpus=None, memory="2Gi") | {"restartPolicy": "Always"},
            container("fetch", gpus=None, memory="20Gi"),
        ],
        overhead={"memory": "1Gi"},
    )
    found = pod_record_of(made)
    assert found is not None
    assert (found.memory, found.memory_limit) == (23 * _GIB, 23 * _GIB)


def test_a_container_without_a_limit_may_grow_to_its_request_at_least() -> None:
    made = pod(container(gpus=1, memory=None) | {"resources": {"requests": {"memory": "3Gi"}}}, nodeName="n1")
    found = pod_record_of(made)
    assert found is not None
    assert (found.memory, found.memory_limit) == (3 * _GIB, 3 * _GIB)


def test_a_pod_of_malformed_resources_says_where() -> None:
    with pytest.raises(MalformedError, match="memory"):
        pod_record_of(pod(container(memory="lots"), nodeName="n1"))


def _affinity(key: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}, "spot"),
        ({"nodeSelector": {"eks.amazonaws.com/capacityType": "ON_DEMAND"}}, "on-demand"),
        ({"affinity": _affinity("cloud.google.com/gke-spot", "true")}, "spot"),
        ({"affinity": _affinity("karpenter.sh/capacity-type", "spot", "on-demand")}, ""),
        ({}, ""),
    ],
)
def test_spot_and_on_demand_are_told_apart_by_what_the_pods_select(spec: dict[str, Any], wanted: str) -> None:
    assert capacity_of(opened(pod(container(), **spec)).pod_sets[0]) == wanted


def test_zones_of_a_node_are_read_in_both_versions_of_their_policy() -> None:
    zone = {"name": "node-1", "type": "Node", "resources": [{"name": "nvidia.com/gpu", "capacity": "4", "allocatable": "4"}]}
    found = node_topology_of({"metadata": {"name": "n"}, "zones": [zone], "topologyPolicies": ["SingleNUMANodePodLevel"]})
    assert (found.policy, found.scope, found.zones[0].allocatable) == ("single-numa-node", "pod", {"nvidia.com/gpu": 4})
    attributes = [{"name": "topologyManagerPolicy", "value": "restricted"}]
    assert node_topology_of({"metadata": {"name": "n"}, "attributes": attributes}).policy == "restricted"


def test_selectors_match_as_the_api_defines() -> None:
    expressions = [{"key": "tier", "operator": "NotIn", "values": ["dev"]}, {"key": "gpu", "operator": "Exists"}]
    found = selector_in({"s": {"matchLabels": {"team": "a"}, "matchExpressions": expressions}}, "s")
    assert found is not None
    assert found.matches({"team": "a", "gpu": "1"})
    assert not found.matches({"team": "a", "gpu": "1", "tier": "dev"})
    assert not found.matches({"team": "b", "gpu": "1"})
    assert selector_in({}, "s") is None
    assert Selector(()).matches({"any": "thing"})


def test_a_toleration_covers_as_the_scheduler_says() -> None:
    taint = Taint("gpu", "h100", "NoSchedule")
    assert Toleration("gpu", "Exists", "", "").covers(taint)
    assert Toleration("", "Exists", "", "NoSchedule").covers(taint)
    assert Toleration("gpu", "Equal", "h100", "").covers(taint)
    assert not Toleration("gpu", "Equal", "a100", "").covers(taint)
    assert not Toleration("", "Equal", "", "").covers(taint)
    assert not Toleration("gpu", "Exists", "", "NoExecute").covers(taint)


def test_a_node_keeps_what_shapes_are_made_of_alone() -> None:
    snapshot = snapshot_from_objects([node("n", labels={"a": "b"})])
    assert snapshot.shapes[0].labels == {"a": {"b"}}
    assert snapshot.shapes[0].total_memory == 1000 * _GIB


@pytest.mark.parametrize("read", [cluster_queue_of, local_queue_of])
def test_a_stop_policy_that_is_no_text_is_malformed_and_breaks_nothing(read: Any) -> None:
    with pytest.raises(MalformedError, match=r"spec\.stopPolicy: must be a string"):
        read({"metadata": {"name": "q"}, "spec": {"stopPolicy": ["Hold"]}})


def test_a_node_that_says_it_has_less_than_nothing_has_nothing() -> None:
    below = {"cpu": "-4", "memory": "-1Gi", "nvidia.com/gpu": "-8", "hugepages-2Mi": "-2Mi", "ephemeral-storage": "-1"}
    found = node_of({"metadata": {"name": "odd"}, "status": {"allocatable": below}})
    assert (found.cpu, found.memory, found.devices, found.extra) == (0, 0, {}, {"hugepages-2Mi": 0})


def test_of_a_namespaces_annotations_short_words_are_kept_and_gpugates_own_first() -> None:
    many = {f"a{number:02}": "x" for number in range(64)}
    written = {"gpugate.io/owner": "vision", "json": "{}", "list": "[]", "long": "x" * 129, "none": "", **many}
    kept = namespace_of({"metadata": {"name": "a", "annotations": written}}).annotations
    assert set(kept) == {"gpugate.io/owner", *list(many)[:63]}


def test_a_namespace_without_annotations_has_none() -> None:
    assert namespace_of({"metadata": {"name": "a", "annotations": None}}).annotations == {}
