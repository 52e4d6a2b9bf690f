"""By which labels the pods of a workload are told from all others."""

from __future__ import annotations

from gpugate.policies.kube.fields import Object, mapping
from gpugate.policies.workloads.kinds import JOB
from gpugate.policies.workloads.workload import PodSet, Workload

#: Labels that tell an application's pods, those that most surely do so first.
_TELLING = ("batch.kubernetes.io/job-name", "app.kubernetes.io/name", "app")


def pod_selector(workload: Workload, pods: PodSet) -> Object | None:
    """A label selector for the pods of this workload; None where they carry nothing to tell them by."""
    if workload.kind is JOB and workload.name:
        return {"matchLabels": {"batch.kubernetes.io/job-name": workload.name}}
    selector = mapping(mapping(workload.root, "spec", ()), "selector", ("spec",))
    if workload.kind.group == "apps" and selector.get("matchLabels"):
        return {"matchLabels": dict(mapping(selector, "matchLabels", ("spec", "selector")))}
    labels = pods.labels()
    for key in _TELLING:
        if key in labels:
            return {"matchLabels": {key: labels[key]}}
    return None
