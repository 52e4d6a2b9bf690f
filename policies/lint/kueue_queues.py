"""Kueue's ClusterQueue and LocalQueue admit what they were meant to.

Sources: Kueue v0.15.0 ``apis/kueue/v1beta1/clusterqueue_types.go`` (a namespaceSelector that is null selects no namespace, ``{}``
all), ``pkg/scheduler/flavorassigner`` (a workload that asks for a resource without quota is never admitted),
``pkg/cache/scheduler/clusterqueue.go`` (a ClusterQueue whose flavor is missing is inactive).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import is_accelerator, may_be_accelerator, suggestion
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.lint.context import LintContext, list_at, map_at, maps_at, text_at

GROUP: Final = "kueue.x-k8s.io"
_ORDINARY: Final = ("cpu", "memory")
_GROUPS: Final[Path] = ("spec", "resourceGroups")


def check_cluster_queue(obj: Object, around: LintContext) -> Iterator[Finding]:
    """What keeps a ClusterQueue from admitting anything."""
    spec = map_at(obj, "spec")
    if spec.get("namespaceSelector") is None:
        message = "it has no namespaceSelector, which selects no namespace: Kueue admits nothing through it"
        remedy = "Write namespaceSelector: {} for every namespace, or select those that may use it."
        yield Finding("NoNamespaces", ("spec", "namespaceSelector"), message, remedy)
    covered = {str(name) for _, group in maps_at(spec, "resourceGroups") for name in list_at(group, "coveredResources")}
    if not covered:
        message = "it has no resourceGroups, so it has no quota: a workload that asks for anything is never admitted"
        yield Finding("NoQuota", _GROUPS, message, "Write resourceGroups with coveredResources and flavors.")
    for at, group in maps_at(spec, "resourceGroups"):
        yield from _check_group((*_GROUPS, at), group, around)
    yield from _check_ordinary(covered, around)


def _check_group(path: Path, group: Object, around: LintContext) -> Iterator[Finding]:
    for name in list_at(group, "coveredResources"):
        right = suggestion(str(name))
        if right:
            message = f"no device plugin serves {name}: no pod counts against its quota"
            yield Finding("UnservedResource", (*path, "coveredResources"), message, f"Write {right}.")
    for at, flavor in maps_at(group, "flavors"):
        yield from _check_flavor((*path, "flavors", at, "name"), text_at(flavor, "name"), around)


def _check_flavor(path: Path, name: str, around: LintContext) -> Iterator[Finding]:
    if not name or name in around.names(GROUP, "ResourceFlavor") or name in around.snapshot.flavors:
        return
    yield _missing("FlavorMissing", path, f"ResourceFlavor {name}", around.is_known("resourceflavors"))


def _missing(reason: str, path: Path, what: str, certain: bool) -> Finding:  # noqa: FBT001 - one answer
    where = (
        "neither among these objects nor in the cluster" if certain else "not among these objects, and the cluster's are not given"
    )
    message = f"{what} is {where}: without it the queue is inactive and admits nothing"
    remedy = f"Create {what}, or name one that is there."
    return Finding(reason, path, message, remedy, Level.WARN if certain else Level.UNKNOWN)


def _check_ordinary(covered: set[str], around: LintContext) -> Iterator[Finding]:
    """CPU and memory that a queue for accelerators does not cover, though nearly every pod asks for them."""
    accelerators = sorted(name for name in covered if is_accelerator(name) or may_be_accelerator(name))
    excluded = around.snapshot.kueue.excluded if around.snapshot.kueue else ()
    left_out = [name for name in _ORDINARY if name not in covered and not any(name.startswith(one) for one in excluded)]
    if not accelerators or not left_out:
        return
    named = " and ".join(left_out)
    message = (
        f"it covers {', '.join(accelerators)} and not {named}: a workload that requests {named} (and what is limited is requested) "
        "is never admitted"
    )
    remedy = f"Add {named} to coveredResources with a quota, or exclude them (excludeResourcePrefixes of Kueue's Configuration)."
    yield Finding("RequestsNotCovered", _GROUPS, message, remedy, Level.WARN)


def check_local_queue(obj: Object, around: LintContext) -> Iterator[Finding]:
    """A LocalQueue that leads to no ClusterQueue, or to one that does not admit from its namespace."""
    path: Path = ("spec", "clusterQueue")
    name = text_at(obj, *path)
    if not name:
        message = "it names no ClusterQueue: what is queued in it is never admitted"
        yield Finding("NoClusterQueue", path, message, "Write spec.clusterQueue.")
    elif name not in around.names(GROUP, "ClusterQueue") and name not in around.snapshot.cluster_queues:
        yield _missing("ClusterQueueMissing", path, f"ClusterQueue {name}", around.is_known("clusterqueues"))
