"""Pods as records: what is remembered of what they ask for says the same as a reading of each alone."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.records.common import shared_text
from gpugate.policies.cluster.records.pods import pod_record_of
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import limited_memory_of, pod_requests
from tests.shared.caches import results_of

_AMOUNTS = st.sampled_from([None, "1", "250m", "1Gi", 2, "bad"])
_RESOURCES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            kind: st.fixed_dictionaries({}, optional=dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), _AMOUNTS))
            for kind in ("limits", "requests")
        },
    ),
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.just("c"), "resources": _RESOURCES}, optional={"restartPolicy": st.just("Always")}),
    max_size=3,
)


@settings(max_examples=300)
@given(st.lists(st.tuples(_CONTAINERS, _CONTAINERS), min_size=1, max_size=4))
def test_a_pod_asks_for_what_a_reading_of_it_alone_finds(pods: list[Any]) -> None:
    for inits, containers in pods:
        obj = {"spec": {"nodeName": "n", "initContainers": inits, "containers": containers}}
        try:
            read = PodSet(obj, obj["spec"], (), 1, frozenset())
            wanted: Any = (
                pod_requests(read).memory,
                limited_memory_of(read),
                pod_requests(read).cpu,
                dict(pod_requests(read).devices),
            )
        except MalformedError as error:
            with pytest.raises(MalformedError, match=re.escape(str(error))):
                pod_record_of(obj)
            continue
        found = pod_record_of(obj)
        assert found is not None
        assert (found.memory, found.memory_limit, found.cpu, dict(found.devices)) == wanted


def test_equal_texts_and_groups_of_pods_are_kept_once() -> None:
    def gang(name: str) -> Any:
        metadata = {"name": name, "labels": {"kueue.x-k8s.io/pod-group-name": "gang"}}
        return pod_record_of(orjson.loads(orjson.dumps({"metadata": metadata, "spec": {"nodeName": "node-one", "containers": []}})))

    one, other = gang("a"), gang("b")
    assert one.node is other.node
    assert one.group is other.group
    assert one.member is other.member


def test_shared_texts_are_bounded() -> None:
    assert results_of(shared_text).most == 1 << 16
