"""What holds for queues, quotas and limit ranges of any kind: the rules answer, and more pods are never easier to admit."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Severity
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import clone
from tests.shared import strategies as drawn
from tests.shared.builders import bind, decided, every_rule

_BOUND = every_rule()
#: What `queue-quota` says of a workload that its queue cannot admit, at whatever level.
_NEVER_ADMITTED = frozenset(
    {
        *("ClusterQueueUnknown", "NamespaceNotAdmitted", "NoFlavorMatches", "NotCovered", "PriorityClassUnknown"),
        *("QueueStopped", "QuotaNeverFits"),
    }
)
_RULES = frozenset({"queue-quota", "namespace-limits"})
_QUEUE = "kueue.x-k8s.io/queue-name"
_AMOUNTS = st.fixed_dictionaries(
    {"nvidia.com/gpu": st.sampled_from(["1", "2", "8"])},
    optional={
        "memory": st.sampled_from(["1Gi", "8Gi", "200Gi"]),
        "cpu": st.sampled_from(["500m", "4", "16"]),
        "nvidia.com/mig-1g.5gb": st.just("1"),
        "rdma/hca": st.just("1"),
        "ephemeral-storage": st.just("1Gi"),
    },
)


@st.composite
def _jobs(draw: st.DrawFn) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": draw(_AMOUNTS)}}
    spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Never"}
    spec |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "initContainers": st.just([{"name": "fetch", "resources": {"requests": {"memory": "2Gi", "cpu": "20"}}}]),
                "runtimeClassName": st.just("kata"),
                "nodeSelector": st.sampled_from([{"zone": "a"}, {"zone": "b"}]),
                "tolerations": st.just([{"key": "sku", "operator": "Exists"}]),
                "activeDeadlineSeconds": st.just(60),
            },
        )
    )
    metadata = {"name": "w", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": draw(st.sampled_from(["a", "b"]))}}
    number = draw(st.integers(1, 6))
    template = {"parallelism": number, "completions": number, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template}


@st.composite
def _clusters(draw: st.DrawFn) -> ClusterSnapshot:
    objects = draw(drawn.queue_objects()) + draw(drawn.bound_objects())
    return snapshot_from_objects([*objects, *draw(st.sampled_from([[], [drawn.KUEUE_CONFIGURATION]]))])


def _refusals(root: dict[str, Any], snapshot: ClusterSnapshot) -> set[tuple[str, str]]:
    decision = decided(clone(root), _BOUND, snapshot=snapshot)
    assert decision.failures == []
    return {
        (one.rule, one.finding.reason)
        for one in decision.findings
        if one.rule in _RULES and one.severity is Severity.DENY and one.finding.remedy.endswith(".")
    }


@given(_jobs(), _clusters())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_is_refused_stays_refused_with_twice_the_pods(job: dict[str, Any], snapshot: ClusterSnapshot) -> None:
    larger: dict[str, Any] = clone(job)
    larger["spec"]["parallelism"] *= 2
    larger["spec"]["completions"] *= 2
    assert _refusals(job, snapshot) <= _refusals(larger, snapshot)


@given(_jobs(), _clusters())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_never_fits_is_not_said_to_wait(job: dict[str, Any], snapshot: ClusterSnapshot) -> None:
    reasons = {one.finding.reason for one in decided(clone(job), _BOUND, snapshot=snapshot).findings if one.rule == "queue-quota"}
    assert not {"QuotaNeverFits", "NotCovered", "NoFlavorMatches", "QueueStopped"} & reasons or "WaitsForQuota" not in reasons


@given(_jobs(), _clusters())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_job_is_put_into_the_queues_that_could_admit_it_and_into_no_others(
    job: dict[str, Any], snapshot: ClusterSnapshot
) -> None:
    name = job["metadata"]["labels"][_QUEUE]
    plain: dict[str, Any] = clone(job)
    del plain["metadata"]["labels"]
    bound = bind({"queue": {"queueName": name}}, mode="Enforce")
    found = _reasons(plain, bound, snapshot)
    queued = _QUEUE in plain["metadata"].get("labels", {})
    assert _NEVER_ADMITTED.isdisjoint(found)
    assert queued is not ("NotQueued" in found)
    assert queued is _NEVER_ADMITTED.isdisjoint(_reasons(clone(job), bound, snapshot))


def _reasons(root: dict[str, Any], bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> set[str]:
    findings = decided(root, bound, snapshot=snapshot).findings
    return {one.finding.reason for one in findings if one.rule in {"queue", "queue-quota"}}
