"""The books of an audit: what is judged anew, what is kept, and what is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.gpu_usage import place_of
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.audit.evaluate import AuditContext
from gpugate.webhook.audit.index import WorkloadIndex, index_of
from gpugate.webhook.audit.model import AuditedWorkload
from gpugate.webhook.audit.subjects import subjects_in
from tests.shared.audits import Json, a_pod, books_of, job, named, owned, subject
from tests.shared.reviews import overcommitted_pod, policy

LENS = AuditContext(PolicySet([policy()]), EMPTY_SNAPSHOT)


def put(books: WorkloadIndex, obj: Json) -> bool:
    found = subject(obj)
    return books.put(place_of(found), found)


def judged(books: WorkloadIndex, *, everything: bool = False, context: AuditContext = LENS) -> list[str]:
    """Names of what was judged this time."""
    return sorted(
        one.name if isinstance(one, AuditedWorkload) else one
        for one in books.evaluate(context, everything=everything)
        if one is not None
    )


def names(books: WorkloadIndex) -> list[str]:
    return [one.name for one in books.workloads()]


def test_only_what_changed_is_judged_again() -> None:
    books = WorkloadIndex()
    assert put(books, a_pod("a"))
    assert put(books, a_pod("b"))
    assert judged(books) == ["a", "b"]
    assert judged(books) == []
    assert not put(books, a_pod("a")), "the same once more is no change"
    assert put(books, a_pod("b", gpus=2))
    assert judged(books) == ["b"]
    assert judged(books, everything=True) == ["a", "b"]
    assert names(books) == ["a", "b"]


def test_another_policy_counts_when_everything_is_judged_anew() -> None:
    books = books_of(overcommitted_pod(uid="u"), policies=[policy(mode=None, rules={"host-memory": {"mode": "Enforce"}})])
    warning = AuditContext(PolicySet([policy(mode=None, rules={"host-memory": {"mode": "Mutate"}})]), EMPTY_SNAPSHOT)
    assert judged(books, context=warning) == []
    assert books.workloads()[0].outcome == "refuse"
    assert judged(books, everything=True, context=warning) == ["greedy"]
    assert books.workloads()[0].outcome == "warn"


def test_what_is_gone_is_forgotten() -> None:
    books = WorkloadIndex()
    put(books, a_pod("a"))
    put(books, a_pod("b"))
    judged(books)
    place = place_of(subject(a_pod("a")))
    assert books.put(place, None)
    assert not books.put(place, None), "it was gone already"
    assert judged(books) == []
    assert names(books) == ["b"]
    assert [one.subject.name for one in books.targets()] == ["b"]


def test_what_an_owner_comes_to_stand_for_is_forgotten_and_comes_back_with_its_end() -> None:
    books = WorkloadIndex()
    part = owned(job("part"), named("jobset.x-k8s.io/v1alpha2", "JobSet", "whole"))
    put(books, part)
    judged(books)
    assert names(books) == ["part"]
    whole = {**job("whole"), **named("jobset.x-k8s.io/v1alpha2", "JobSet", "whole")}
    whole["spec"] = {"replicatedJobs": [{"name": "w", "template": {"spec": job()["spec"]}}]}
    put(books, whole)
    assert judged(books) == ["whole"]
    assert names(books) == ["whole"]
    books.put(place_of(subject(whole)), None)
    assert judged(books) == ["part"]


def test_one_more_pod_of_a_group_is_a_change_of_the_group() -> None:
    books, spark = WorkloadIndex(), named("sparkoperator.k8s.io/v1beta2", "SparkApplication", "etl")
    put(books, owned(a_pod("etl-1"), spark))
    judged(books)
    put(books, owned(a_pod("etl-2"), spark))
    assert judged(books) == ["etl"]
    assert [one.pods for one in books.workloads()] == [2]
    books.put(place_of(subject(a_pod("etl-1"))), None)
    assert judged(books) == ["etl"]
    assert [one.pods for one in books.workloads()] == [1]


def test_what_becomes_unreadable_is_a_remark_and_no_workload_until_it_is_readable_again() -> None:
    books = WorkloadIndex()
    put(books, a_pod("a"))
    judged(books)
    place = place_of(subject(a_pod("a")))
    assert books.put(place, "Pod team-a/a cannot be read: why")
    assert not books.put(place, "Pod team-a/a cannot be read: why")
    judged(books)
    assert names(books) == []
    assert books.remarks() == ("Pod team-a/a cannot be read: why",)
    assert books.places() == [place]
    assert put(books, a_pod("a"))
    judged(books)
    assert (names(books), books.remarks()) == (["a"], ())


def test_what_cannot_be_judged_is_a_remark_that_goes_with_it() -> None:
    books, broken = WorkloadIndex(), a_pod("a")
    broken["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "many"
    put(books, broken)
    judged(books)
    (remark,) = books.remarks()
    assert remark.startswith("Pod team-a/a cannot be evaluated: spec.containers[0].resources.limits[nvidia.com/gpu]")
    books.put(place_of(subject(a_pod("a"))), None)
    judged(books)
    assert books.remarks() == ()


def test_what_comes_while_a_round_is_under_way_is_for_the_next() -> None:
    books = WorkloadIndex()
    put(books, a_pod("a"))
    put(books, a_pod("b"))
    round_ = books.evaluate(LENS, everything=True)
    next(round_)
    put(books, a_pod("c"))
    books.put(place_of(subject(a_pod("b"))), None)
    list(round_)
    assert names(books) == ["a", "b"]
    assert judged(books) == ["c"]
    assert names(books) == ["a", "c"]


def test_two_kinds_of_job_with_one_name_are_two() -> None:
    volcano = named("batch.volcano.sh/v1alpha1", "Job", "train")
    volcano["spec"] = {"tasks": [{"name": "w", "replicas": 1, "template": {"spec": a_pod()["spec"]}}]}
    assert [one.api_version for one in books_of(job("train"), volcano).workloads()] == ["batch.volcano.sh/v1alpha1", "batch/v1"]


def test_objects_of_a_file_that_have_no_name_yet_are_each_judged() -> None:
    first, second = job(), job(gpus=4)
    for one in (first, second):
        one["metadata"] = {"generateName": "train-", "namespace": "team-a"}
    assert sorted(one.accelerators for one in books_of(first, second).workloads()) == [1, 4]


def test_an_object_that_is_there_twice_counts_once_and_as_it_came_last() -> None:
    assert [one.accelerators for one in books_of(a_pod(), a_pod(gpus=2)).workloads()] == [2]


@given(st.permutations([a_pod("a"), overcommitted_pod("b"), job("c"), {**a_pod("d"), "spec": []}, a_pod("e", gpus="x")]))
def test_the_order_of_the_objects_changes_nothing(objects: list[Json]) -> None:
    books, same = books_of(*objects), books_of(a_pod("a"), overcommitted_pod("b"), job("c"), *objects)
    assert books.workloads() == same.workloads()
    assert len(books.remarks()) == 2
    assert sorted(books.remarks()) == list(books.remarks())


def test_every_object_that_cannot_be_read_has_its_own_line() -> None:
    books = index_of(subjects_in({**a_pod(name), "spec": []} for name in ("a", "b")))
    assert len(books.remarks()) == 2
