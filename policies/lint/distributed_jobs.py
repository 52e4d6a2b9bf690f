"""Check objects that can stop a distributed job: training jobs without resources, volume claims, network policies.

Collectives (NCCL, Gloo, MPI) connect every worker with the others. A NetworkPolicy that selects the workers and admits traffic
from another role only makes the job hang at its first all-reduce, without an error.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import MalformedError, Object, Path
from gpugate.policies.lint.context import LintContext, Pods, list_at, map_at, maps_at, pods_in, text_at, texts_at
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload


def check_training_job(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for a job of which no container states resources."""
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if kind is None:
        return
    try:
        pod_sets = open_workload(kind, obj, context.snapshot).pod_sets
    except MalformedError:
        return
    containers = [container for pods in pod_sets for container in pods.containers]
    has_resources = any(container.spec.get("resources") for container in containers)
    if not containers or has_resources or any(pods.gpu_claims for pods in pod_sets):
        return
    message = "no container sets resources, so the pods get no GPU, run on any node and train on its CPUs"
    remedy = "Write resources.limits with nvidia.com/gpu for each replica that trains on GPUs."
    path = (*pod_sets[0].path, "spec", "containers")
    yield Finding("AsksForNothing", path, message, remedy, Level.WARN)


_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_PATH: Final[Path] = ("spec", "accessModes")


def check_volume_claim(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for pods of the same input that cannot mount the claim at once."""
    modes = [mode for mode in list_at(obj, *_PATH) if isinstance(mode, str)]
    if not modes or any(mode not in {_ONE_NODE, _ONE_POD} for mode in modes):
        return
    place = (context.namespace_of(obj), text_at(obj, "metadata", "name"))
    users = context.cached("users of claims", lambda: _users(context)).get(place, [])
    total = sum(user.number or 1 for user in users)
    if total < 2 and all(user.number is not None for user in users):
        return
    owners = ", ".join(sorted({user.owner for user in users}))
    if modes == [_ONE_POD]:
        message = f"{_ONE_POD} lets one pod mount it, but {total} pods of {owners} do, so the others wait"
    else:
        message = f"{_ONE_NODE} lets one node mount it, but {total} pods of {owners} do, so those on other nodes never start"
    supported = "with a storage class that supports it (NFS, a parallel file system)"
    remedy = f"Write ReadWriteMany, or ReadOnlyMany if the pods only read, {supported}."
    yield Finding("OneNodeMounts", _PATH, message, remedy, Level.WARN)


def _users(context: LintContext) -> dict[tuple[str, str], list[Pods]]:
    """Return the pod sets that mount each claim, by its namespace and name."""
    groups: dict[tuple[str, str], list[Pods]] = {}
    for user in pods_in(context):
        claims = {text_at(volume, "persistentVolumeClaim", "claimName") for _, volume in maps_at(user.pods.spec, "volumes")}
        for claim in claims - {""}:
            groups.setdefault((user.namespace, claim), []).append(user)
    return groups


_ABOUT_GPUS: Final = re.compile(r"\bgpus?\b|\bcuda\b|\btraining\b", re.IGNORECASE)
_INGRESS: Final[Path] = ("spec", "ingress")
_KIND: Final = ("networking.k8s.io", "NetworkPolicy")
_Item = TypeVar("_Item")


def check_network_policy(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for workers of a job, or pods labelled as such, that cannot reach each other."""
    rules = [rule for _, rule in maps_at(obj, *_INGRESS)]
    types = list_at(obj, "spec", "policyTypes")
    if not rules or (types and "Ingress" not in types):
        return
    labels = texts_at(obj, "spec", "podSelector", "matchLabels")
    jobs = [(gang.owner, texts_at(gang.pods.root, "metadata", "labels")) for gang in _gangs(obj, context)]
    # Policies are additive.
    others = context.cached("policies", lambda: _by_namespace((context.namespace_of(other), other) for other in context.of(*_KIND)))
    for other in others.get(context.namespace_of(obj), []):
        rules += [rule for _, rule in maps_at(other, *_INGRESS) if other is not obj]
    cut_off = sorted({owner for owner, own in jobs if not _admits(rules, own)})
    if cut_off:
        message = f"the policy selects the pods of {', '.join(cut_off)} and admits no traffic from them, so they"
    elif (
        not jobs and _ABOUT_GPUS.search(" ".join(f"{key} {value}" for key, value in labels.items())) and not _admits(rules, labels)
    ):
        named = ", ".join(f"{key}: {value}" for key, value in sorted(labels.items()))
        message = f"the policy selects pods with {named} and admits no traffic from them, so workers of a job with these labels"
    else:
        return
    remedy = "Add an ingress rule from a podSelector with the labels of the policy's own podSelector."
    yield Finding("WorkersCutOff", _INGRESS, f"{message} cannot reach each other and collectives hang", remedy, Level.WARN)


def _gangs(obj: Object, context: LintContext) -> list[Pods]:
    """Return the gangs of the same input that the policy selects."""
    try:
        selector = selector_in(map_at(obj, "spec"), "podSelector")
    except MalformedError:
        return []
    gangs = context.cached(
        "gangs", lambda: _by_namespace((gang.namespace, gang) for gang in pods_in(context) if gang.batch and (gang.number or 0) > 1)
    )
    return [
        gang
        for gang in gangs.get(context.namespace_of(obj), [])
        if selector is None or selector.matches(texts_at(gang.pods.root, "metadata", "labels"))
    ]


def _by_namespace(pairs: Iterable[tuple[str, _Item]]) -> dict[str, list[_Item]]:
    groups: dict[str, list[_Item]] = {}
    for namespace, item in pairs:
        groups.setdefault(namespace, []).append(item)
    return groups


def _admits(rules: list[Object], labels: Mapping[str, str]) -> bool:
    """Return whether a rule allows traffic from pods with ``labels`` of the same namespace."""
    return any(not rule.get("from") or any(_is_peer(peer, labels) for _, peer in maps_at(rule, "from")) for rule in rules)


def _is_peer(peer: Object, labels: Mapping[str, Any]) -> bool:
    if "podSelector" not in peer:
        # An address range or whole namespaces may include the pods: unknown here.
        return True
    try:
        selector = selector_in(peer, "podSelector")
    except MalformedError:
        return True
    return selector is None or selector.matches(labels)
