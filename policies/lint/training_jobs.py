"""Report a training job that states no resources at all, and so trains without GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import MalformedError, Object
from gpugate.policies.lint.context import LintContext, text_at
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload


def check(obj: Object, around: LintContext) -> Iterator[Finding]:
    """A job none of whose containers states resources."""
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if kind is None:
        return
    try:
        pod_sets = open_workload(kind, obj, around.snapshot).pod_sets
    except MalformedError:
        return
    containers = [one for pods in pod_sets for one in pods.containers]
    if not containers or any(one.spec.get("resources") for one in containers) or any(pods.gpu_claims for pods in pod_sets):
        return
    message = "no container states resources: its pods get no GPU, go to any node and train on its CPUs"
    remedy = "Write resources.limits with nvidia.com/gpu for each replica that trains on GPUs."
    path = (*pod_sets[0].path, "spec", "containers")
    yield Finding("AsksForNothing", path, message, remedy, Level.WARN)
