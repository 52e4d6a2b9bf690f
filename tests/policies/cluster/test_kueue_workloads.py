"""The index of Kueue's Workloads follows their owners, and forgets what has finished."""

from __future__ import annotations

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.kueue_workloads import KueueWorkloads
from gpugate.policies.cluster.records.kueue import KueueWorkload

_KEY = ("team-a", "w")
_FREE, _TAKEN = KueueWorkload((), reserved=True, finished=False), KueueWorkload(("7",), reserved=True, finished=False)


def test_a_workload_is_free_until_an_object_takes_it() -> None:
    workloads = KueueWorkloads()
    assert workloads.put(_KEY, _FREE)
    assert workloads.is_free(*_KEY)
    assert not workloads.is_free("team-b", "w")
    assert workloads.put(_KEY, _TAKEN)
    assert not workloads.is_free(*_KEY)
    assert workloads.belong_to("7")


def test_an_object_is_known_as_long_as_one_of_its_workloads_has_not_finished() -> None:
    workloads = KueueWorkloads()
    workloads.put(_KEY, _TAKEN)
    workloads.put(("team-a", "x"), _TAKEN)
    workloads.put(_KEY, _TAKEN._replace(finished=True))
    assert workloads.belong_to("7")
    workloads.put(("team-a", "x"), None)
    assert not workloads.belong_to("7")
    assert not list(workloads)


def test_a_status_without_news_changes_nothing() -> None:
    workloads = KueueWorkloads()
    workloads.put(_KEY, _TAKEN)
    assert not workloads.put(_KEY, _TAKEN._replace(reserved=False))
    assert not workloads.put(("team-a", "x"), None)


def test_a_new_list_drops_workloads_that_are_gone() -> None:
    builder = SnapshotBuilder()
    builder.put("workloads", _KEY, _FREE)
    assert builder.replace("workloads", {("team-a", "x"): _FREE})
    workloads = builder.snapshot({}).kueue_workloads
    assert not workloads.is_free(*_KEY)
    assert workloads.is_free("team-a", "x")


def test_a_workload_of_multikueue_is_known_until_it_has_finished() -> None:
    workloads = KueueWorkloads()
    workloads.put(_KEY, _TAKEN._replace(dispatched=True))
    assert workloads.is_dispatched(*_KEY)
    workloads.put(_KEY, _TAKEN._replace(dispatched=True, finished=True))
    assert not workloads.is_dispatched(*_KEY)
    workloads.put(_KEY, _TAKEN)
    assert not workloads.is_dispatched(*_KEY)
