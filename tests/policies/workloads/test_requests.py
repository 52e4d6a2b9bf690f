"""What one pod asks for, added up as the scheduler adds (``component-helpers/resource.PodRequests``)."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.workloads.requests import explain_requests, pod_requests
from tests.shared.builders import pod, pods_of


def _asks(name: str, memory: str | None = None, cpu: str | None = None, **more: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("memory", memory), ("cpu", cpu)) if value}
    return {"name": name, "resources": {"requests": requests}} | more


def _init(name: str, memory: str, **more: Any) -> dict[str, Any]:
    return _asks(name, memory, **more)


def _sidecar(name: str, memory: str) -> dict[str, Any]:
    return _asks(name, memory, restartPolicy="Always")


def _gib(*containers: dict[str, Any], **spec: Any) -> float:
    return pod_requests(pods_of(pod(*containers, **spec))).memory / (1 << 30)


def test_containers_are_added_up() -> None:
    assert _gib(_asks("a", "1Gi"), _asks("b", "2Gi"), _asks("c")) == 3


def test_a_limit_stands_in_for_a_request_that_is_not_stated() -> None:
    limited = {"name": "a", "resources": {"limits": {"memory": "4Gi", "cpu": "2"}}}
    stated = {"name": "b", "resources": {"limits": {"memory": "4Gi", "cpu": "2"}, "requests": {"memory": "1Gi", "cpu": "0"}}}
    demand = pod_requests(pods_of(pod(limited, stated)))
    assert (demand.memory, demand.cpu) == (5 << 30, 2000)


@pytest.mark.parametrize(
    ("inits", "wanted"),
    [
        ([_init("i", "3Gi")], 4),
        ([_init("i", "6Gi")], 6),
        ([_init("i", "5Gi"), _init("j", "6Gi")], 6),
        # A sidecar runs beside the containers, and beside the init containers after it, not before it.
        ([_sidecar("s", "2Gi")], 6),
        ([_init("i", "5Gi"), _sidecar("s", "2Gi")], 6),
        ([_sidecar("s", "2Gi"), _init("i", "5Gi")], 7),
        ([_sidecar("s", "2Gi"), _init("i", "5Gi"), _sidecar("t", "1Gi"), _init("j", "5Gi")], 8),
        ([_sidecar("s", "2Gi"), _sidecar("t", "3Gi"), _init("i", "1Gi")], 9),
    ],
)
def test_init_containers_count_at_their_peak_with_the_sidecars_before_them(inits: list[dict[str, Any]], wanted: int) -> None:
    assert _gib(_asks("main", "4Gi"), initContainers=inits) == wanted


def test_ephemeral_containers_ask_for_nothing() -> None:
    assert _gib(_asks("main", "4Gi"), ephemeralContainers=[_asks("debug", "9Gi")]) == 4


def test_overhead_comes_on_top() -> None:
    demand = pod_requests(pods_of(pod(_asks("main", "4Gi", "1"), overhead={"memory": "1Gi", "cpu": "250m"})))
    assert (demand.memory, demand.cpu) == (5 << 30, 1250)


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ({"requests": {"memory": "8Gi"}}, 9),
        # The apiserver takes a pod-level limit for the request only where no container requests the resource.
        ({"limits": {"memory": "8Gi"}}, 5),
        ({"limits": {"memory": "16Gi"}, "requests": {"memory": "8Gi"}}, 9),
        ({"limits": {"cpu": "1"}}, 5),
        (None, 5),
    ],
)
def test_pod_level_resources_stand_in_for_the_sum_where_they_state_one(resources: Any, wanted: int) -> None:
    assert _gib(_asks("main", "4Gi"), resources=resources, overhead={"memory": "1Gi"}) == wanted


def test_accelerators_of_init_containers_are_counted_at_their_peak() -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    inits = [{"name": "s", "restartPolicy": "Always", **gpu}, {"name": "i", "resources": {"limits": {"nvidia.com/gpu": 7}}}]
    assert pod_requests(pods_of(pod({"name": "main", **gpu}, initContainers=inits))).devices == {"nvidia.com/gpu": 9}
    assert pod_requests(pods_of(pod({"name": "main", **gpu}, initContainers=inits[:1]))).devices == {"nvidia.com/gpu": 4}


def test_the_sum_is_shown_as_it_comes_about() -> None:
    pods = pods_of(
        pod(_asks("main", "4Gi", "2"), _asks("idle"), initContainers=[_sidecar("s", "1Gi")], overhead={"memory": "512Mi"})
    )
    assert explain_requests(pods, "memory") == "1Gi (sidecar s) + 4Gi (main) + 512Mi (overhead) = 5632Mi"
    assert explain_requests(pods, "cpu") == "2 (main)"
    assert explain_requests(pods_of(pod(_asks("main"))), "memory") == "0"
    peak = pods_of(pod(_asks("main", "1Gi"), initContainers=[_sidecar("s", "1Gi"), _init("i", "8Gi")]))
    assert explain_requests(peak, "memory") == "8Gi (init container i) + 1Gi (sidecar s) = 9Gi"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"overhead": {"memory": "lots"}}, "spec.overhead.memory"),
        ({"resources": {"requests": {"memory": []}}}, "spec.resources.requests.memory"),
        ({"overhead": "1Gi"}, "spec.overhead"),
    ],
)
def test_what_is_no_quantity_is_named(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(MalformedError, match=place):
        pod_requests(pods_of(pod(_asks("main", "1Gi"), **spec)))
