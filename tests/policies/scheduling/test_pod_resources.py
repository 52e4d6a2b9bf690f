"""What one pod comes to with all defaults in (``SetDefaults_Pod``, LimitRanger, RuntimeClass; Kubernetes 1.36)."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.scheduling.pod_resources import defaults_for, limit_range_bounds, overhead_of, resolved_resources
from tests.shared.builders import pod, pods_of

GIB = 1 << 30


def _range(*limits: dict[str, Any], name: str = "bounds", namespace: str = "team-a") -> dict[str, Any]:
    return {"kind": "LimitRange", "metadata": {"name": name, "namespace": namespace}, "spec": {"limits": list(limits)}}


def _facts(*limits: dict[str, Any]) -> ClusterSnapshot:
    return snapshot_from_objects([_range(*limits)])


def _states(name: str = "main", limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits, "requests": requests}}


def _of(
    *containers: dict[str, Any], snapshot: ClusterSnapshot = EMPTY_SNAPSHOT, **spec: Any
) -> tuple[dict[str, int], dict[str, int]]:
    found = resolved_resources(pods_of(pod(*containers, **spec)), snapshot, "team-a")
    return dict(found.requests), dict(found.limits)


def test_every_resource_is_counted_and_a_limit_stands_in_for_a_request() -> None:
    stated = _states(limits={"nvidia.com/gpu": 2, "memory": "4Gi", "rdma/hca": "1"}, requests={"cpu": "500m", "memory": "1Gi"})
    assert _of(stated) == (
        {"nvidia.com/gpu": 2, "memory": GIB, "rdma/hca": 1, "cpu": 500},
        {"nvidia.com/gpu": 2, "memory": 4 * GIB, "rdma/hca": 1},
    )


def test_a_limit_range_gives_what_a_container_does_not_state() -> None:
    snapshot = _facts({"type": "Container", "default": {"memory": "8Gi"}, "defaultRequest": {"memory": "2Gi", "cpu": "1"}})
    assert _of(_states(), snapshot=snapshot) == ({"memory": 2 * GIB, "cpu": 1000}, {"memory": 8 * GIB})
    assert _of(_states(limits={"memory": "4Gi"}), snapshot=snapshot)[0] == {"memory": 4 * GIB, "cpu": 1000}


def test_a_limit_range_of_another_namespace_or_another_type_gives_nothing() -> None:
    elsewhere = snapshot_from_objects([_range({"type": "Container", "default": {"memory": "8Gi"}}, namespace="team-b")])
    assert _of(_states(), snapshot=elsewhere) == ({}, {})
    assert _of(_states(), snapshot=_facts({"type": "Pod", "max": {"memory": "8Gi"}})) == ({}, {})


@pytest.mark.parametrize(
    ("item", "limits", "requests"),
    [
        ({"max": {"memory": "8Gi"}}, 8, 8),
        ({"min": {"memory": "1Gi"}}, None, 1),
        ({"max": {"memory": "8Gi"}, "min": {"memory": "1Gi"}}, 8, 8),
        ({"default": {"memory": "4Gi"}, "max": {"memory": "8Gi"}}, 4, 4),
        ({"defaultRequest": {"memory": "2Gi"}, "max": {"memory": "8Gi"}, "min": {"memory": "1Gi"}}, 8, 2),
    ],
)
def test_the_api_derives_defaults_from_bounds(item: dict[str, Any], limits: int | None, requests: int) -> None:
    defaults = defaults_for(_facts({"type": "Container", **item}), "team-a")
    assert defaults.limits.get("memory") == (None if limits is None else limits * GIB)
    assert defaults.requests["memory"] == requests * GIB


def test_of_several_limit_ranges_the_least_default_counts_and_is_unsure() -> None:
    snapshot = snapshot_from_objects(
        [
            _range({"type": "Container", "default": {"memory": "8Gi", "cpu": 1}}, name="a"),
            _range({"type": "Container", "default": {"memory": "4Gi", "cpu": 1}}, name="b"),
        ]
    )
    defaults = defaults_for(snapshot, "team-a")
    assert (defaults.limits["memory"], defaults.unsure) == (4 * GIB, {"memory"})


def test_a_container_must_stay_within_the_narrowest_bounds() -> None:
    bounds = limit_range_bounds(
        _facts(
            {"type": "Container", "min": {"memory": "1Gi"}, "max": {"memory": "64Gi"}},
            {"type": "Container", "min": {"memory": "2Gi"}, "max": {"memory": "96Gi"}},
            {"type": "Pod", "max": {"memory": "1Gi"}},
        ),
        "team-a",
    )
    assert (bounds.min["memory"], bounds.max["memory"]) == (2 * GIB, 64 * GIB)
    assert limit_range_bounds(EMPTY_SNAPSHOT, "team-a").max == {}


def test_init_containers_count_at_their_peak() -> None:
    init = [_states("i", requests={"memory": "6Gi"})]
    sidecar = [_states("s", requests={"memory": "1Gi"}) | {"restartPolicy": "Always"}]
    assert _of(_states(requests={"memory": "4Gi"}), initContainers=init)[0] == {"memory": 6 * GIB}
    assert _of(_states(requests={"memory": "4Gi"}), initContainers=sidecar + init)[0] == {"memory": 7 * GIB}


def test_ephemeral_containers_count_for_nothing() -> None:
    assert _of(_states(), ephemeralContainers=[_states("debug", limits={"memory": "1Gi"})]) == ({}, {})


def test_pod_level_resources_stand_in_for_the_sum() -> None:
    stated = _states(requests={"memory": "1Gi", "nvidia.com/gpu": 1})
    requests, limits = _of(stated, resources={"requests": {"memory": "4Gi"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 9}})
    assert requests == {"memory": 4 * GIB, "nvidia.com/gpu": 1}
    assert limits == {"memory": 8 * GIB}


def test_a_pod_level_limit_is_the_request_only_where_no_container_requests_any() -> None:
    limits = {"limits": {"memory": "8Gi"}}
    assert _of(_states(), resources=limits)[0] == {"memory": 8 * GIB}
    assert _of(_states(requests={"memory": "1Gi"}), resources=limits)[0] == {"memory": GIB}


def test_what_containers_request_is_taken_for_the_pod_before_a_limit_range_adds_to_it() -> None:
    snapshot = _facts({"type": "Container", "defaultRequest": {"memory": "2Gi"}})
    both = (_states("a", requests={"memory": "1Gi"}), _states("b"))
    assert _of(*both, snapshot=snapshot)[0] == {"memory": 3 * GIB}
    assert _of(*both, snapshot=snapshot, resources={"limits": {"memory": "8Gi"}})[0] == {"memory": GIB}


def test_overhead_adds_to_requests_and_to_limits_that_are_stated() -> None:
    found = _of(_states(limits={"memory": "4Gi"}), overhead={"memory": "1Gi", "cpu": "250m"})
    assert found == ({"memory": 5 * GIB, "cpu": 250}, {"memory": 5 * GIB})


def test_overhead_comes_from_the_runtime_class_where_the_pod_states_none() -> None:
    kata = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": {"memory": "2Gi"}}}
    snapshot = snapshot_from_objects([kata])
    assert overhead_of(pods_of(pod(_states(), runtimeClassName="kata")), snapshot) == {"memory": 2 * GIB}
    assert overhead_of(pods_of(pod(_states(), runtimeClassName="kata", overhead={"memory": "1Gi"})), snapshot) == {"memory": GIB}
    assert overhead_of(pods_of(pod(_states(), runtimeClassName="other")), snapshot) == {}
    assert overhead_of(pods_of(pod(_states())), snapshot) == {}
    without = resolved_resources(pods_of(pod(_states(), runtimeClassName="kata")), snapshot, "team-a", with_overhead=False)
    assert without.requests == {}


def test_an_amount_that_is_no_quantity_is_said_with_its_place() -> None:
    with pytest.raises(MalformedError, match="ephemeral-storage"):
        _of(_states(limits={"ephemeral-storage": "lots"}))
    with pytest.raises(MalformedError, match=r"spec\.resources\.limits\.memory"):
        _of(_states(), resources={"limits": {"memory": "lots"}})
