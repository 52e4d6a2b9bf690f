"""What was just admitted counts against quota until the watches show it; what is old is said to be old."""

from __future__ import annotations

from typing import Any

from gpugate.policies.cluster.builder import SnapshotBuilder, key_of, snapshot_from_objects
from gpugate.policies.cluster.in_flight import InFlight
from gpugate.policies.cluster.kinds import fact_kind_of
from gpugate.policies.cluster.records.kueue import cluster_queue_of, flavor_of
from gpugate.policies.cluster.records.namespaces import limit_range_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.engine.engine import in_flight_entry
from gpugate.policies.findings import Severity
from tests.shared.builders import bind, container, decided, opened, templated

_LABELS = {"kueue.x-k8s.io/queue-name": "train"}
_OBJECTS: list[dict[str, Any]] = [
    {"kind": "LocalQueue", "metadata": {"name": "train", "namespace": "team-a"}, "spec": {"clusterQueue": "q"}},
    {
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [{"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 16}]}],
                }
            ],
        },
    },
    {
        "kind": "ResourceQuota",
        "metadata": {"name": "hard", "namespace": "team-a"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "16", "pods": "3"}},
    },
]
_BOUND = bind({"queue-quota": {"mode": "Enforce"}, "namespace-limits": {"mode": "Enforce"}})


def _job(pods: int, gpus: int = 4) -> dict[str, Any]:
    job = templated("Job", container(memory=None, gpus=gpus), parallelism=pods, completions=pods)
    job["metadata"]["labels"] = dict(_LABELS)
    return job


def _messages(job: dict[str, Any], snapshot: ClusterSnapshot) -> dict[str, str]:
    findings = decided(job, _BOUND, snapshot=snapshot).findings
    return {one.finding.reason: one.finding.message for one in findings if one.severity is Severity.WARN}


def test_two_jobs_in_one_second_are_not_both_promised_the_same_room() -> None:
    snapshot = snapshot_from_objects(_OBJECTS)
    assert _messages(_job(2, 8), snapshot) == {}

    admitted = in_flight_entry(opened(_job(2), snapshot=snapshot))
    assert admitted is not None
    snapshot.in_flight.add("uid", admitted)
    found = _messages(_job(2, 8), snapshot)
    assert found["WaitsForQuota"] == (
        "the workload does not fit now: 2 pods x 8 = 16 of nvidia.com/gpu > 8 left of 16 in flavor f of ClusterQueue q"
        " (0 reserved, 8 in flight)"
    )
    assert found["QuotaFullNow"] == (
        "the workload does not fit now into ResourceQuota hard of namespace team-a: 2 pods x 1 = 2 of pods > 1 left of 3"
        " (0 used, 2 in flight); 2 pods x 8 = 16 of requests.nvidia.com/gpu > 8 left of 16 (0 used, 8 in flight)"
    )

    snapshot.in_flight.remove("uid")
    assert _messages(_job(2, 8), snapshot) == {}


def test_what_rests_on_facts_that_are_out_of_date_is_not_known() -> None:
    given = snapshot_from_objects(_OBJECTS)
    builder = SnapshotBuilder()
    builder.replace("clusterqueues", {("", name): one for name, one in given.cluster_queues.items()})
    builder.replace("localqueues", {("team-a", one.name): one for one in given.queues["team-a"]})
    builder.replace("resourcequotas", {("team-a", one.name): one for one in given.quotas["team-a"]})
    known = dict.fromkeys(("clusterqueues", "localqueues", "resourcequotas"), SyncState.SYNCED)
    for stale, wanted in (({}, Severity.DENY), ({"clusterqueues": 7, "resourcequotas": 7}, Severity.UNKNOWN)):
        job = _job(5, 8)
        job["metadata"]["annotations"] = {"gpugate.io/gang-size": "5"}
        findings = decided(job, _BOUND, snapshot=builder.snapshot(known, stale)).findings
        assert {(one.rule, one.finding.reason, one.severity) for one in findings} == {
            ("namespace-limits", "QuotaSplitsGang", wanted),
            ("queue-quota", "QuotaNeverFits", wanted),
        }


def _built(*objects: dict[str, Any]) -> SnapshotBuilder:
    builder = SnapshotBuilder()
    for obj in objects:
        kind = fact_kind_of(obj)
        assert kind is not None
        builder.put(kind.resource, key_of(obj), kind.read(obj))
    return builder


def _reasons(builder: SnapshotBuilder, job: dict[str, Any]) -> set[str]:
    known = dict.fromkeys(("localqueues", "clusterqueues", "resourceflavors", "limitranges", "runtimeclasses"), SyncState.SYNCED)
    return {one.finding.reason for one in decided(job, _BOUND, snapshot=builder.snapshot(known)).findings}


def test_what_was_found_to_fit_is_looked_at_anew_when_quota_or_defaults_change() -> None:
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}}
    builder = _built(*_OBJECTS[:2], flavor)
    assert _reasons(builder, _job(2, 8)) == _reasons(builder, _job(2, 8)) == set()
    assert _reasons(builder, _job(3, 8)) == {"QuotaNeverFits"}, "another number of pods is another question"

    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    builder.put("resourceflavors", ("", "f"), flavor_of({**flavor, "spec": {"nodeTaints": [taint]}}))
    assert _reasons(builder, _job(2, 8)) == {"NoFlavorMatches"}
    builder.put("resourceflavors", ("", "f"), flavor_of(flavor))
    assert _reasons(builder, _job(2, 8)) == set()

    default = {"type": "Container", "default": {"memory": "1Gi"}}
    limits = {"kind": "LimitRange", "metadata": {"name": "l", "namespace": "team-a"}, "spec": {"limits": [default]}}
    builder.put("limitranges", ("team-a", "l"), limit_range_of(limits))
    assert _reasons(builder, _job(2, 8)) == {"NotCovered"}
    builder.put("limitranges", ("team-a", "l"), None)
    assert _reasons(builder, _job(2, 8)) == set()

    reserved = [{"name": "f", "resources": [{"name": "nvidia.com/gpu", "total": "4"}]}]
    builder.put("clusterqueues", ("", "q"), cluster_queue_of({**_OBJECTS[1], "status": {"flavorsReservation": reserved}}))
    assert _reasons(builder, _job(2, 8)) == {"WaitsForQuota"}


def _unauthenticated(*sent: dict[str, Any]) -> ClusterSnapshot:
    """The facts of a server whose callers are unknown, which was sent these jobs."""
    builder = SnapshotBuilder()
    for obj in _OBJECTS:
        kind = fact_kind_of(obj)
        assert kind is not None
        builder.put(kind.resource, key_of(obj), kind.read(obj))
    unconfirmed = InFlight()
    builder.in_flight = InFlight(unconfirmed)
    known = dict.fromkeys(("localqueues", "clusterqueues", "resourcequotas"), SyncState.SYNCED)
    snapshot = builder.snapshot(known)
    for number, job in enumerate(sent):
        admitted = in_flight_entry(opened(job, snapshot=snapshot))
        assert admitted is not None
        unconfirmed.add(str(number), admitted)
    return snapshot


def test_a_thousand_forged_reviews_take_a_tenth_of_a_quota_rounded_up_and_refuse_nothing() -> None:
    snapshot = _unauthenticated(*(_job(2, 8) for _ in range(1000)))
    # A tenth of 16 GPUs is 2, a tenth of 3 pods is 1.
    assert _messages(_job(1, 14), snapshot) == {}
    found = _messages(_job(1, 15), snapshot)
    assert "15 of nvidia.com/gpu > 14 left of 16" in found["WaitsForQuota"]
    assert "15 of requests.nvidia.com/gpu > 14 left of 16 (0 used, 2 in flight)" in found["QuotaFullNow"]
    assert not any(one.severity is Severity.DENY for one in decided(_job(1, 16), _BOUND, snapshot=snapshot).findings)


def test_two_jobs_in_one_second_are_still_told_of_each_other_within_the_share() -> None:
    assert set(_messages(_job(1, 15), _unauthenticated(_job(1, 2)))) == {"QuotaFullNow", "WaitsForQuota"}
    assert _messages(_job(1, 15), _unauthenticated(_job(1, 1))) == {}


def test_what_the_watch_confirmed_counts_in_full_beside_the_share() -> None:
    snapshot = _unauthenticated(*(_job(1, 8) for _ in range(10)))
    admitted = in_flight_entry(opened(_job(1, 8), snapshot=snapshot))
    assert admitted is not None
    snapshot.in_flight.add("confirmed", admitted)
    assert _messages(_job(1, 6), snapshot) == {}
    assert "7 of nvidia.com/gpu > 6 left of 16" in _messages(_job(1, 7), snapshot)["WaitsForQuota"]
