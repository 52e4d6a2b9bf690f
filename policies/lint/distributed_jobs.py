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
    if (
        not containers
        or any(container.spec.get("resources") for container in containers)
        or any(pods.gpu_claims for pods in pod_sets)
    ):
        return
    message = "no container states resources: its pods get no GPU, go to any node and train on its CPUs"
    remedy = "Write resources.limits with nvidia.com/gpu for each replica that trains on GPUs."
    path = (*pod_sets[0].path, "spec", "containers")
    yield Finding("AsksForNothing", path, message, remedy, Level.WARN)


_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_PATH: Final[Path] = ("spec", "accessModes")


def check_volume_claim(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for pods of the same input that cannot mount the claim at once."""
    modes = [one for one in list_at(obj, *_PATH) if isinstance(one, str)]
    if not modes or any(mode not in {_ONE_NODE, _ONE_POD} for mode in modes):
        return
    place = (context.namespace_of(obj), text_at(obj, "metadata", "name"))
    users = context.kept("users of claims", lambda: _users(context)).get(place, [])
    total = sum(user.number or 1 for user in users)
    if total < 2 and all(user.number is not None for user in users):
        return
    owners = ", ".join(sorted({user.owner for user in users}))
    if modes == [_ONE_POD]:
        message = f"{_ONE_POD} lets one pod mount it, and {total} pods of {owners} do: the others wait"
    else:
        message = f"{_ONE_NODE} lets one node mount it, and {total} pods of {owners} do: those on other nodes never start"
    remedy = (
        "Write ReadWriteMany, or ReadOnlyMany where they only read, with a storage class that has it (NFS, a parallel file system)."
    )
    yield Finding("OneNodeMounts", _PATH, message, remedy, Level.WARN)


def _users(context: LintContext) -> dict[tuple[str, str], list[Pods]]:
    """Return the pod sets that mount each claim, by its namespace and name."""
    groups: dict[tuple[str, str], list[Pods]] = {}
    for one in pods_in(context):
        claims = {text_at(volume, "persistentVolumeClaim", "claimName") for _, volume in maps_at(one.pods.spec, "volumes")}
        for claim in claims - {""}:
            groups.setdefault((one.namespace, claim), []).append(one)
    return groups


_ABOUT_GPUS: Final = re.compile(r"\bgpus?\b|\bcuda\b|\btraining\b", re.IGNORECASE)
_INGRESS: Final[Path] = ("spec", "ingress")
_KIND: Final = ("networking.k8s.io", "NetworkPolicy")
_One = TypeVar("_One")


def check_network_policy(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check for workers of a job, or pods labelled as such, that cannot reach each other."""
    rules = [rule for _, rule in maps_at(obj, *_INGRESS)]
    types = list_at(obj, "spec", "policyTypes")
    if not rules or (types and "Ingress" not in types):
        return
    labels = texts_at(obj, "spec", "podSelector", "matchLabels")
    jobs = [(gang.owner, texts_at(gang.pods.root, "metadata", "labels")) for gang in _gangs(obj, context)]
    # Policies are additive.
    rules += [rule for other in _others(obj, context) for _, rule in maps_at(other, *_INGRESS)]
    cut_off = sorted({owner for owner, own in jobs if not _let_in(rules, own)})
    if cut_off:
        message = f"it selects the pods of {', '.join(cut_off)} and lets none of them in: they cannot reach each other"
    elif (
        not jobs and _ABOUT_GPUS.search(" ".join(f"{key} {value}" for key, value in labels.items())) and not _let_in(rules, labels)
    ):
        named = ", ".join(f"{key}: {value}" for key, value in sorted(labels.items()))
        message = f"pods with {named} are selected and not let in: workers of one job with these labels cannot reach each other"
    else:
        return
    remedy = "Add a rule that lets the selected pods themselves in: from a podSelector with the labels of the policy's own."
    yield Finding("WorkersCutOff", _INGRESS, f"{message}, and collectives hang", remedy, Level.WARN)


def _others(obj: Object, context: LintContext) -> Iterator[Object]:
    """Return the other policies of the same namespace and input."""
    result = context.kept("policies", lambda: _by_namespace((context.namespace_of(one), one) for one in context.of(*_KIND)))
    return (one for one in result.get(context.namespace_of(obj), []) if one is not obj)


def _gangs(obj: Object, context: LintContext) -> list[Pods]:
    """Return the gangs of the same input that the policy selects."""
    try:
        selector = selector_in(map_at(obj, "spec"), "podSelector")
    except MalformedError:
        return []
    several = context.kept(
        "gangs", lambda: _by_namespace((one.namespace, one) for one in pods_in(context) if one.batch and (one.number or 0) > 1)
    )
    value = several.get(context.namespace_of(obj), [])
    return [one for one in value if selector is None or selector.matches(texts_at(one.pods.root, "metadata", "labels"))]


def _by_namespace(pairs: Iterable[tuple[str, _One]]) -> dict[str, list[_One]]:
    groups: dict[str, list[_One]] = {}
    for namespace, one in pairs:
        groups.setdefault(namespace, []).append(one)
    return groups


def _let_in(rules: list[Object], labels: Mapping[str, str]) -> bool:
    """Return whether a rule allows traffic from pods with ``labels`` of the same namespace."""
    return any(
        "from" not in rule or not rule["from"] or any(_is_peer(one, labels) for _, one in maps_at(rule, "from")) for rule in rules
    )


def _is_peer(peer: Object, labels: Mapping[str, Any]) -> bool:
    if "podSelector" not in peer:
        # An address range or whole namespaces may include the pods: unknown here.
        return True
    try:
        selector = selector_in(peer, "podSelector")
    except MalformedError:
        return True
    return selector is None or selector.matches(labels)
