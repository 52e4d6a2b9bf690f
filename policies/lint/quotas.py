"""Check quotas for accelerators: ResourceQuota, and Kueue's ClusterQueue and LocalQueue.

Sources: ``k8s.io/kubernetes`` v1.36 ``pkg/quota/v1/evaluator/core/pods.go``, ``isExtendedResourceNameForQuota``: the quota of an
extended resource counts under ``requests.<name>`` only, since an extended resource cannot be overcommitted. The apiserver accepts
any other name with a slash, shows it in the status and counts nothing. Kueue v0.15.0
``apis/kueue/v1beta1/clusterqueue_types.go`` (a null namespaceSelector selects no namespace, ``{}`` selects all),
``pkg/scheduler/flavorassigner`` (a workload that requests a resource without quota is never admitted),
``pkg/cache/scheduler/clusterqueue.go`` (a ClusterQueue with a missing flavor is inactive).
"""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU, is_accelerator, may_be_accelerator, suggestion
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.lint.context import LintContext, list_at, map_at, maps_at, text_at

_COUNTED: Final = "requests."
_LIMITS: Final = "limits."


def check_resource_quota(obj: Object, _context: LintContext) -> Iterator[Finding]:
    """Check for accelerator names that no quota counts."""
    hard = map_at(obj, "spec", "hard")
    for name in sorted(hard):
        bare = name.removeprefix(_COUNTED).removeprefix(_LIMITS)
        if not may_be_accelerator(bare) or name.startswith("count/"):
            continue
        right = NVIDIA_GPU if bare == LEGACY_GPU else suggestion(bare) or bare
        if name == _COUNTED + right:
            continue
        amount, place = f"{hard[name]}", ("spec", "hard", name)
        if name.startswith(_COUNTED):
            message = f"no device plugin provides {bare}, so the quota of {amount} limits nothing"
        elif _COUNTED + right in hard:
            counted = f"{_COUNTED}{right}: {hard[_COUNTED + right]}"
            message = f"the apiserver does not count the quota {name}: {amount}, and {counted} beside it is counted"
            yield Finding("QuotaNotCounted", place, message, f"Remove {name}.", Level.WARN)
            continue
        else:
            message = f"the apiserver accepts the quota {name}: {amount} but never counts it, so pods may request any number"
        yield Finding("QuotaNotCounted", place, message, f'Write {_COUNTED}{right}: "{amount}".')


GROUP: Final = "kueue.x-k8s.io"
_ORDINARY: Final = ("cpu", "memory")
_GROUPS: Final[Path] = ("spec", "resourceGroups")


def check_cluster_queue(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for a ClusterQueue that admits nothing."""
    spec = map_at(obj, "spec")
    if spec.get("namespaceSelector") is None:
        message = "the ClusterQueue has no namespaceSelector, so it selects no namespace and admits nothing"
        remedy = "Write namespaceSelector: {} for every namespace, or select those that may use it."
        yield Finding("NoNamespaces", ("spec", "namespaceSelector"), message, remedy)
    covered = {str(name) for _, group in maps_at(spec, "resourceGroups") for name in list_at(group, "coveredResources")}
    if not covered:
        message = "the ClusterQueue has no resourceGroups, so it has no quota and admits no workload that requests a resource"
        yield Finding("NoQuota", _GROUPS, message, "Write resourceGroups with coveredResources and flavors.")
    for at, group in maps_at(spec, "resourceGroups"):
        yield from _check_group((*_GROUPS, at), group, context)
    yield from _check_ordinary(covered, context)


def _check_group(path: Path, group: Object, context: LintContext) -> Iterator[Finding]:
    for name in list_at(group, "coveredResources"):
        right = suggestion(str(name))
        if right:
            message = f"no device plugin provides {name}, so no pod counts against its quota"
            yield Finding("UnservedResource", (*path, "coveredResources"), message, f"Write {right}.")
    for at, flavor in maps_at(group, "flavors"):
        name = text_at(flavor, "name")
        if name and name not in context.names(GROUP, "ResourceFlavor") and name not in context.snapshot.flavors:
            place = (*path, "flavors", at, "name")
            yield _missing("FlavorMissing", place, f"ResourceFlavor {name}", known=context.is_known("resourceflavors"))


def _missing(reason: str, path: Path, title: str, *, known: bool) -> Finding:
    if known:
        message = f"{title} is neither among these objects nor in the cluster, so the queue is inactive and admits nothing"
    else:
        message = f"{title} is not among these objects and those of the cluster are not given, so the queue may be inactive"
    return Finding(reason, path, message, f"Create {title}, or name an existing one.", Level.WARN if known else Level.UNKNOWN)


def _check_ordinary(covered: set[str], context: LintContext) -> Iterator[Finding]:
    """Check that a queue for accelerators covers CPU and memory, which nearly every pod requests."""
    accelerators = sorted(name for name in covered if is_accelerator(name) or may_be_accelerator(name))
    excluded = context.snapshot.kueue.excluded if context.snapshot.kueue else ()
    missing = [name for name in _ORDINARY if name not in covered and not name.startswith(tuple(excluded))]
    if not accelerators or not missing:
        return
    named = " and ".join(missing)
    never = f"a workload that requests {named} (a limit is also a request) is never admitted"
    message = f"the ClusterQueue covers {', '.join(accelerators)} but not {named}, so {never}"
    remedy = f"Add {named} to coveredResources with a quota, or exclude them (excludeResourcePrefixes of Kueue's Configuration)."
    yield Finding("RequestsNotCovered", _GROUPS, message, remedy, Level.WARN)


def check_local_queue(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for a LocalQueue without an existing ClusterQueue."""
    path: Path = ("spec", "clusterQueue")
    name = text_at(obj, *path)
    if not name:
        message = "the LocalQueue names no ClusterQueue, so its workloads are never admitted"
        yield Finding("NoClusterQueue", path, message, "Write spec.clusterQueue.")
    elif name not in context.names(GROUP, "ClusterQueue") and name not in context.snapshot.cluster_queues:
        yield _missing("ClusterQueueMissing", path, f"ClusterQueue {name}", known=context.is_known("clusterqueues"))
