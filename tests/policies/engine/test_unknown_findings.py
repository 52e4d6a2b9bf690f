"""Unknown findings that the policy refuses deny new objects and changed templates, but no UPDATE that makes nothing worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Mode, Severity
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.rules.registry import RULES
from tests.shared.builders import bind, container, decided, node, pod, templated

Root = dict[str, Any]
_KINDS = frozenset().union(*(rule.needs for rule in RULES))
#: Clusters without current facts: the watches are broken, or nothing has been read yet.
_STALE = replace(snapshot_from_objects([node("n", labels={"pool": "a"})]), stale=dict.fromkeys(_KINDS, 7))
_UNSYNCED = snapshot_from_objects([], dict.fromkeys(_KINDS, SyncState.PENDING))
_REFUSING = bind({rule.id: {"onUnknown": "Refuse"} for rule in RULES if rule.default_max_mode is Mode.ENFORCE}, mode="Enforce")
_QUEUE = {"kueue.x-k8s.io/queue-name": "q"}

every_cluster = pytest.mark.parametrize("snapshot", [_STALE, _UNSYNCED], ids=["stale", "unsynced"])


def _deployment(replicas: int = 4, **more: Any) -> Root:
    return templated("Deployment", container(gpus=16, **more), replicas=replicas)


def _job(*, suspend: bool, parallelism: int = 2) -> Root:
    root = templated("Job", container(gpus=16), parallelism=parallelism, suspend=suspend)
    root["metadata"]["labels"] = dict(_QUEUE)
    return root


def _owned(root: Root, api_version: str, kind: str) -> Root:
    owner = {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "1", "controller": True}
    root["metadata"]["ownerReferences"] = [owner]
    return root


def _decided(root: Root, snapshot: ClusterSnapshot, old: Root | None = None) -> Decision:
    """Return the validating webhook's decision on ``root`` as the mutating one left it; ``old`` was edited at its creation."""
    root, old = clone(root), clone(old)
    if old is not None:
        decided(old, _REFUSING, snapshot=snapshot)
    decided(root, _REFUSING, snapshot=snapshot, old=clone(old), phase=Phase.MUTATE)
    return decided(root, _REFUSING, snapshot=snapshot, old=old, phase=Phase.CHECK)


def _reports_and_admits(decision: Decision) -> bool:
    return not decision.refused and any(judged.severity is Severity.UNKNOWN for judged in decision.findings)


@every_cluster
def test_a_scale_down_passes(snapshot: ClusterSnapshot) -> None:
    assert _reports_and_admits(_decided(_deployment(replicas=2), snapshot, _deployment()))


@every_cluster
def test_a_resubmitted_object_with_another_label_passes(snapshot: ClusterSnapshot) -> None:
    root = _deployment()
    root["metadata"]["labels"] = {"team": "b"}
    assert _reports_and_admits(_decided(root, snapshot, _deployment()))


@every_cluster
@pytest.mark.parametrize("parallelism", [2, 1])
def test_a_job_that_kueue_resumes_or_stops_passes(snapshot: ClusterSnapshot, parallelism: int) -> None:
    suspended, running = _job(suspend=True, parallelism=parallelism), _job(suspend=False)
    if parallelism == 2:
        placed = clone(running)
        placed["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
        assert _reports_and_admits(_decided(placed, snapshot, suspended))
    assert _reports_and_admits(_decided(suspended, snapshot, running))


@every_cluster
def test_the_child_of_a_reviewed_owner_passes(snapshot: ClusterSnapshot) -> None:
    child = _owned(_job(suspend=False), "jobset.x-k8s.io/v1alpha2", "JobSet")
    assert _reports_and_admits(_decided(child, snapshot))


def test_the_pod_of_a_reviewed_owner_passes_until_the_facts_are_there() -> None:
    assert _reports_and_admits(_decided(_owned(pod(container()), "apps/v1", "ReplicaSet"), _UNSYNCED))


@every_cluster
def test_a_change_of_status_or_of_other_metadata_passes(snapshot: ClusterSnapshot) -> None:
    changed = _deployment()
    changed["status"] = {"replicas": 4}
    changed["metadata"] |= {"resourceVersion": "2", "finalizers": ["example.com/f"]}
    assert _decided(changed, snapshot, _deployment()).findings == []
    live = pod(container(gpus=16))
    decided(live, _REFUSING, snapshot=snapshot)
    labelled = clone(live) | {"status": {"phase": "Running"}}
    labelled["metadata"]["labels"] = {"team": "b"}
    assert _reports_and_admits(_decided(labelled, snapshot, live))


@every_cluster
def test_in_dryrun_such_an_update_would_not_be_refused(snapshot: ClusterSnapshot) -> None:
    dry = tuple(binding._replace(mode=Mode.DRY_RUN) for binding in _REFUSING)
    decision = decided(_deployment(replicas=2), dry, snapshot=snapshot, old=_deployment())
    assert decision.findings
    assert not any(judged.would_refuse for judged in decision.findings)


@every_cluster
def test_a_new_object_is_refused(snapshot: ClusterSnapshot) -> None:
    assert _decided(_deployment(), snapshot).refused
    assert _decided(_job(suspend=False), snapshot).refused
    assert _decided(pod(container(gpus=16)), snapshot).refused


@every_cluster
def test_a_worse_template_is_refused(snapshot: ClusterSnapshot) -> None:
    assert _decided(_deployment(image="b", memory="2000Gi"), snapshot, _deployment(image="a")).refused


def test_a_changed_template_is_refused_if_nothing_is_known_of_the_cluster() -> None:
    assert _decided(_deployment(image="b"), _UNSYNCED, _deployment(image="a")).refused


def test_more_pods_are_refused_if_they_may_make_something_worse() -> None:
    old, new = _job(suspend=True, parallelism=2), _job(suspend=False, parallelism=3)
    assert _decided(new, _UNSYNCED, old).refused
    assert _decided(_deployment(replicas=5), _UNSYNCED, _deployment()).refused
    assert not _decided(_deployment(replicas=5), _STALE, _deployment()).refused
