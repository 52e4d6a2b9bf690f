"""What the tests of the audit share: workloads as an apiserver has them, audits of them, and findings made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.evaluate import TEAM_LABELS, AuditContext
from gpugate.webhook.audit.index import WorkloadIndex, index_of
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item
from gpugate.webhook.audit.subjects import Subject, subjects_in
from tests.shared.reviews import pod, policy

Json = dict[str, Any]


def owned(obj: Json, owner: Json, *, controller: bool = True) -> Json:
    """``obj`` with an ownerReference to ``owner``."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "controller": controller,
        **({"uid": owner["metadata"]["uid"]} if "uid" in owner["metadata"] else {}),
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def made(obj: Json, uid: str = "") -> Json:
    """``obj`` with a uid, by default one of its own."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "uid": uid or f"uid-{obj['kind']}-{metadata['namespace']}-{metadata['name']}"}}


def a_pod(name: str = "p", **resources: Any) -> Json:
    return made(pod(name, **resources))


def named(api_version: str, kind: str, name: str, namespace: str = "team-a") -> Json:
    """An object of any kind that says nothing but what it is."""
    return made({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {}})


def templated(api_version: str, kind: str, name: str, *, gpus: int | str = 1, **spec: Any) -> Json:
    """An object with a pod template at ``spec.template``."""
    found = named(api_version, kind, name)
    return {**found, "spec": {**spec, "template": {"spec": pod(gpus=gpus)["spec"]}}}


def job(name: str = "train", **spec: Any) -> Json:
    return templated("batch/v1", "Job", name, **spec)


def deployment(name: str = "serve", **spec: Any) -> Json:
    return templated("apps/v1", "Deployment", name, **spec)


def replica_set(name: str = "serve-1", **spec: Any) -> Json:
    return templated("apps/v1", "ReplicaSet", name, **spec)


def job_set(name: str = "set", replicas: int = 1, **spec: Any) -> Json:
    replicated = {"name": "workers", "replicas": replicas, "template": {"spec": job(**spec)["spec"]}}
    return {**named("jobset.x-k8s.io/v1alpha2", "JobSet", name), "spec": {"replicatedJobs": [replicated]}}


def cron_job(name: str = "nightly") -> Json:
    found = named("batch/v1", "CronJob", name)
    return {**found, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job()["spec"]}}}


def subject(obj: Json) -> Subject:
    """The one subject that ``obj`` is."""
    (found,) = subjects_in([obj])
    assert isinstance(found, Subject), found
    return found


def books_of(
    *objects: Json,
    policies: Iterable[Policy] | None = None,
    snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
    team_labels: tuple[str, ...] = TEAM_LABELS,
    now: float | None = None,
) -> WorkloadIndex:
    """Books in which all of ``objects`` are judged."""
    books = index_of(subjects_in(objects))
    chosen = PolicySet([policy()] if policies is None else policies)
    for _ in books.evaluate(AuditContext(chosen, snapshot, team_labels, now), everything=True):
        pass
    return books


def audited(*objects: Json, **lens: Any) -> list[AuditedWorkload]:
    """What an audit finds of ``objects``, all of which can be read."""
    books = books_of(*objects, **lens)
    assert books.remarks() == ()
    return [*books.workloads()]


def audit(*workloads: AuditedWorkload, **fields: Any) -> Audit:
    return Audit(**{"at": "2026-01-01T00:00:00Z", "source": "tests", "policies": (), "workloads": workloads, **fields})


def item(effect: Effect = Effect.REFUSE, **fields: Any) -> Item:
    start: Mapping[str, Any] = {
        "rule": "host-memory",
        "policy": "default@1",
        "mode": Mode.DRY_RUN,
        "reason": "Overcommit",
        "path": "spec.containers[0]",
        "message": "limit 48Gi / request 4Gi = 12",
        "remedy": "Lower the limit.",
    }
    return Item(effect=effect, **{**start, **fields})


def workload(name: str = "w", *items: Item, **fields: Any) -> AuditedWorkload:
    start: Mapping[str, Any] = {
        "api_version": "v1",
        "kind": "Pod",
        "namespace": "team-a",
        "uid": f"uid-{name}",
        "team": "",
        "queue": "",
        "pods": 1,
        "devices": (("nvidia.com/gpu", 1),),
    }
    return AuditedWorkload(**{**start, "name": name, "items": items, **fields})
