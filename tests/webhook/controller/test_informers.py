"""What the controller is fed: workloads into the books, pods into facts and books, one read for both."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gpugate.policies.cluster.gpu_usage import Place
from gpugate.webhook.audit.subjects import SUBJECT_KINDS, Subject
from gpugate.webhook.cache.kinds import FACT_KINDS, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.informers import Tee, WorkloadInformer, observe_workload, strip_for_both
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import Json, a_pod, deployment, job, made, owned, replica_set
from tests.shared.reviews import cpu_pod

KIND = {kind.name: kind for kind in SUBJECT_KINDS if kind.group != "batch.volcano.sh"}
VOLCANO = next(kind for kind in SUBJECT_KINDS if kind.group == "batch.volcano.sh")
PODS = next(kind for kind in FACT_KINDS if kind.resource == "pods")


class Heard:
    """A feed, and what its listener heard."""

    def __init__(self) -> None:
        self.informer = WorkloadInformer()
        self.told: list[tuple[str, bool]] = []
        self.informer.listeners.append(self.hear)

    def hear(self, place: Place, subject: Subject | None) -> None:
        self.told.append((place[3], subject is not None))

    def quiet(self) -> bool:
        """Whether nothing has stirred since this was asked the last time."""
        updated = self.informer.updated.is_set()
        self.informer.updated.clear()
        return not updated

    @property
    def names(self) -> list[str]:
        return sorted(place[3] for place in self.informer.index.places())


def test_a_workload_comes_changes_and_goes() -> None:
    heard = Heard()
    heard.informer.changed(KIND["Job"], "ADDED", observe_workload(job("a")))
    heard.informer.changed(KIND["Job"], "MODIFIED", observe_workload(job("a", parallelism=2)))
    heard.informer.changed(KIND["Job"], "DELETED", observe_workload(job("a", parallelism=2)))
    assert heard.told == [("a", True), ("a", True), ("a", False)]
    assert heard.names == []
    assert not heard.quiet()


def test_what_says_nothing_new_stirs_nobody() -> None:
    heard = Heard()
    heard.informer.changed(KIND["Job"], "ADDED", observe_workload(job("a")))
    assert not heard.quiet()
    heard.informer.changed(KIND["Job"], "ADDED", observe_workload(job("a")))
    heard.informer.changed(KIND["Pod"], "ADDED", observe_workload(made(cpu_pod())))
    heard.informer.changed(KIND["Pod"], "DELETED", observe_workload(a_pod("never-seen")))
    assert heard.quiet()
    assert len(heard.told) == 1


def test_a_full_list_forgets_what_it_lacks_of_its_own_kind_alone() -> None:
    heard = Heard()
    volcano = {**job("a"), "apiVersion": "batch.volcano.sh/v1alpha1"}
    volcano["spec"] = {"tasks": [{"name": "w", "replicas": 1, "template": job()["spec"]["template"]}]}
    for kind, one in ((KIND["Job"], job("a")), (KIND["Job"], job("b")), (KIND["Pod"], a_pod("p")), (VOLCANO, volcano)):
        heard.informer.changed(kind, "ADDED", observe_workload(one))
    heard.informer.replaced(KIND["Job"], [observe_workload(job("b")), observe_workload(job("c"))])
    assert heard.names == ["a", "b", "c", "p"]
    heard.informer.absent(VOLCANO)
    assert heard.names == ["b", "c", "p"]
    heard.informer.absent(KIND["Pod"])
    assert heard.names == ["b", "c"]


def test_what_cannot_be_read_is_kept_as_a_line_until_it_can() -> None:
    heard = Heard()
    broken = {**job("a"), "spec": []}
    heard.informer.replaced(KIND["Job"], [observe_workload(broken)])
    assert heard.told == [("a", False)]
    (remark,) = heard.informer.index.remarks()
    assert remark.startswith("Job team-a/a cannot be read: spec")
    heard.informer.replaced(KIND["Job"], [observe_workload(job("a"))])
    assert heard.informer.index.remarks() == ()
    heard.informer.changed(KIND["Job"], "MODIFIED", observe_workload(broken))
    heard.informer.changed(KIND["Job"], "DELETED", observe_workload(broken))
    assert heard.informer.index.remarks() == ()


def test_the_links_that_lead_from_pods_to_their_owners_are_kept() -> None:
    heard = Heard()
    whole, part = deployment(), owned(replica_set(), deployment())
    heard.informer.replaced(KIND["Deployment"], [observe_workload(whole)])
    heard.informer.replaced(KIND["ReplicaSet"], [observe_workload(part)])
    heard.informer.replaced(KIND["Pod"], [observe_workload(owned(a_pod(), part))])
    assert heard.names == ["p", "serve", "serve-1"]


@pytest.mark.parametrize("metadata", [None, {}, {"name": "a", "labels": 7}, {"name": "a", "namespace": "b"}])
def test_whatever_the_metadata_an_object_has_a_place(metadata: Any) -> None:
    place = observe_workload({**job(), "metadata": metadata}).place
    assert place[:2] == ("batch", "Job")
    assert place[2:] == (("b", "a") if metadata and "namespace" in metadata else ("", (metadata or {}).get("name", "")))


def test_an_object_of_another_kind_is_none_of_the_audits_business() -> None:
    assert observe_workload({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}).subject is None


class FactsAndBooks:
    """Facts and books that are fed by one tee."""

    def __init__(self) -> None:
        state = CurrentState()
        self.store = SnapshotStore(state, Log(io.StringIO()), [PODS])
        self.heard = Heard()
        self.tee = Tee(self.store, PODS, self.heard.informer, KIND["Pod"])
        self.strip = strip_for_both(reducer_for(PODS), observe_workload)


def running(name: str) -> Json:
    found = a_pod(name, gpus=2)
    found["spec"]["nodeName"] = "n1"
    found["status"] = {"phase": "Running"}
    return found


def test_a_pod_reaches_the_facts_and_the_books_and_leaves_both() -> None:
    both = FactsAndBooks()
    both.tee.replaced(PODS, [both.strip(running("a")), both.strip(running("b"))])
    assert both.store.use_of_node("n1").devices == {"nvidia.com/gpu": 4}
    assert both.heard.names == ["a", "b"]
    both.tee.changed(PODS, "DELETED", both.strip(running("a")))
    assert both.store.use_of_node("n1").devices == {"nvidia.com/gpu": 2}
    assert both.heard.names == ["b"]
    both.tee.replaced(PODS, [])
    assert (both.store.use_of_node("n1").pods, both.heard.names) == (0, [])
    both.tee.changed(PODS, "ADDED", both.strip(running("a")))
    both.tee.absent(PODS)
    assert (both.store.use_of_node("n1").pods, both.heard.names) == (0, [])


def test_a_pod_that_cannot_be_read_is_left_out_of_the_facts_and_told_in_the_books() -> None:
    both = FactsAndBooks()
    both.tee.replaced(PODS, [both.strip(running("a")), both.strip({**running("b"), "spec": []})])
    assert both.store.use_of_node("n1").pods == 1
    assert len(both.heard.informer.index.remarks()) == 1
