"""Answers to a caller who may be anybody: figures without the names of nodes, cohorts and other namespaces."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Judged, Severity
from gpugate.policies.framework.decision import Change, Decision
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.withheld_names import WITHHELD, NameFilter
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import admission, pod, policy, well_formed

Json = dict[str, Any]


def node(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"host-of-{name}", **labels}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": "64Gi", "cpu": "96", "pods": "110"}},
    }


def kueue(kind: str, name: str, namespace: str = "", **spec: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def cluster() -> ClusterSnapshot:
    quota = {"name": "nvidia.com/gpu", "nominalQuota": 4}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": [quota]}]}]
    member = pod("llm-0", gpus=1, labels={"kueue.x-k8s.io/pod-group-name": "llm"}, namespace="rivals")
    member["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    objects = [
        node("gpu-7"),
        member,
        kueue("ResourceFlavor", "h100"),
        kueue("LocalQueue", "train", "team-a", clusterQueue="research"),
        kueue("ClusterQueue", "research", cohortName="secret-cohort", namespaceSelector={}, resourceGroups=groups),
        kueue("ClusterQueue", "theirs", cohortName="secret-cohort", namespaceSelector={}, resourceGroups=groups),
    ]
    known = dict.fromkeys(
        ("nodes", "pods", "localqueues", "clusterqueues", "cohorts", "resourceflavors", "workloads"), SyncState.SYNCED
    )
    return snapshot_from_objects(objects, known)


def texts(obj: Json, *, authenticated: bool, snapshot: ClusterSnapshot | None = None) -> tuple[str, str]:
    """All that both webhooks answer, and all that the log says of it."""
    stream, answers = io.StringIO(), ""
    log = Log(stream)
    door = AdmissionHandler(CurrentState(snapshot or cluster(), [policy()]), Metrics(), log, authenticated=authenticated)
    for endpoint in ("mutate", "validate"):
        response = well_formed(door.answer(endpoint, orjson.dumps(admission(obj))))
        # Audit annotations are cut to a length, and names are longer and shorter.
        audit = orjson.dumps(response.pop("auditAnnotations", {})).decode()
        assert authenticated or not any(name in audit for name in ("gpu-7", "secret-cohort", "rivals"))
        response.pop("patch", None)
        answers += orjson.dumps(response).decode()
    log.flush()
    return answers, stream.getvalue()


def too_large() -> Json:
    return pod("large", gpus=8, memory="512Gi", request="512Gi")


def over_quota() -> Json:
    return pod("many", gpus=16, memory="16Gi", request="16Gi", labels={"kueue.x-k8s.io/queue-name": "train"})


def of_a_group_elsewhere() -> Json:
    metadata = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "llm"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    return pod("llm-1", memory="8Gi", request="8Gi", **metadata)


@pytest.mark.parametrize(("made", "name"), [(too_large, "gpu-7"), (over_quota, "secret-cohort"), (of_a_group_elsewhere, "rivals")])
def test_an_answer_to_an_unknown_caller_has_the_figures_without_the_name(made: Any, name: str) -> None:
    named, _ = texts(made(), authenticated=True)
    assert name in named, "the case shows nothing"
    answer, _ = texts(made(), authenticated=False)
    assert name not in answer
    for other in ("gpu-7", "secret-cohort", "rivals"):
        named = named.replace(other, WITHHELD)
    assert answer == named


def test_the_log_of_the_platform_team_keeps_the_names() -> None:
    answer, log = texts(too_large(), authenticated=False)
    assert "gpu-7" not in answer
    assert "gpu-7" in log


def test_queues_of_the_own_namespace_and_their_clusterqueues_stay() -> None:
    wrong = pod("lost", memory="8Gi", request="8Gi", labels={"kueue.x-k8s.io/queue-name": "trian"})
    answer, _ = texts(wrong, authenticated=False)
    assert "train" in answer
    assert "ClusterQueue research" in texts(over_quota(), authenticated=False)[0]
    assert "theirs" not in answer


def judged(message: str, *, names: tuple[str, ...] = ()) -> Judged:
    return Judged("rule", Severity.DENY, Finding("Reason", ("spec",), message, f"Use {message}.", names=names))


def filtered(messages: Iterable[str], names: tuple[str, ...] = ()) -> list[str]:
    decision = Decision(findings=[judged(message, names=names) for message in messages])
    shown = NameFilter().filtered(decision, snapshot_from_objects([node("gpu-7"), node("gpu")]))
    return [one.finding.message for one in shown.findings]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu-7", "(name withheld)"),
        ("on gpu-7: 8 > 4", "on (name withheld): 8 > 4"),
        ("the largest is gpu-7.", "the largest is (name withheld)."),
        ("gpu-7 (3 nodes), gpu-70", "(name withheld) (3 nodes), gpu-70"),
        ("kubernetes.io/hostname=host-of-gpu-7", "kubernetes.io/hostname=(name withheld)"),
        ("a-gpu-7 and gpu-7-a", "a-gpu-7 and gpu-7-a"),
        ("8 of nvidia.com/gpu", "8 of nvidia.com/gpu"),
        ("gpu.example.com/gpux and gpu-7/x", "gpu.example.com/gpux and gpu-7/x"),
        ("gpu-7... and gpu-7-", "(name withheld)... and (name withheld)-"),
        ("node gpu has 8", "node (name withheld) has 8"),
        ("nothing", "nothing"),
    ],
)
def test_a_name_is_a_whole_word_and_never_part_of_another(text: str, wanted: str) -> None:
    assert filtered([text]) == [wanted]


def test_a_name_of_the_finding_is_left_out_of_that_finding_alone() -> None:
    assert filtered(["cohort default lends 4"], ("default",)) == ["cohort (name withheld) lends 4"]
    assert filtered(["the default is 4"]) == ["the default is 4"]


def test_notes_of_changes_leave_out_nodes_too() -> None:
    nodes = snapshot_from_objects([node("gpu-7")])
    decision = Decision(changes=[Change("r", ("fits gpu-7",))], would_change=[Change("s", ("no more on gpu-7",))])
    shown = NameFilter().filtered(decision, nodes)
    assert (shown.changes, shown.would_change) == (
        [Change("r", ("fits (name withheld)",))],
        [Change("s", ("no more on (name withheld)",))],
    )
    assert decision.changes == [Change("r", ("fits gpu-7",))], "the log still reads the names"


def test_new_nodes_are_known_as_soon_as_a_snapshot_has_them() -> None:
    name_filter, decision = NameFilter(), Decision(findings=[judged("late-1")])
    assert name_filter.filtered(decision, snapshot_from_objects([node("gpu-7")])) is decision
    shown = name_filter.filtered(decision, snapshot_from_objects([node("gpu-7"), node("late-1")]))
    assert shown.findings[0].finding.message == "(name withheld)"


def test_new_nodes_are_known_in_notes_that_were_seen_before() -> None:
    name_filter, decision = NameFilter(), Decision(changes=[Change("r", ("fits late-1",))])
    for _ in range(2):
        assert name_filter.filtered(decision, snapshot_from_objects([node("gpu-7")])) is decision
    shown = name_filter.filtered(decision, snapshot_from_objects([node("gpu-7"), node("late-1")]))
    assert shown.changes == [Change("r", ("fits (name withheld)",))]


def test_notes_of_many_changes_do_not_fill_the_memory() -> None:
    name_filter, nodes = NameFilter(), snapshot_from_objects([node("gpu-7")])
    for number in range(3000):
        name_filter.filtered(Decision(changes=[Change("r", (f"{number} GPUs",))]), nodes)
    assert len(name_filter._plain) <= 1024
