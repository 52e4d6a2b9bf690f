"""A NetworkPolicy that cuts the workers of a distributed job off from each other.

Collectives (NCCL, Gloo, MPI) connect every worker with others. A policy that selects the workers and lets in only another role
leaves the job hanging at its first all-reduce, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import MalformedError, Object, Path
from gpugate.policies.lint.context import LintContext, Pods, list_at, map_at, maps_at, pods_in, texts_at

_ABOUT_GPUS: Final = re.compile(r"\bgpus?\b|\bcuda\b|\btraining\b", re.IGNORECASE)
_PATH: Final[Path] = ("spec", "ingress")
_KIND: Final = ("networking.k8s.io", "NetworkPolicy")
_One = TypeVar("_One")


def check(obj: Object, around: LintContext) -> Iterator[Finding]:
    """Workers of a job, or pods that are named as such, that may not reach each other."""
    rules = [rule for _, rule in maps_at(obj, *_PATH)]
    types = list_at(obj, "spec", "policyTypes")
    if not rules or (types and "Ingress" not in types):
        return
    labels = texts_at(obj, "spec", "podSelector", "matchLabels")
    jobs = [(one.owner, texts_at(one.pods.root, "metadata", "labels")) for one in _gangs(obj, around)]
    # What policies let in adds up.
    rules += [rule for other in _others(obj, around) for _, rule in maps_at(other, *_PATH)]
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
    yield Finding("WorkersCutOff", _PATH, f"{message}, and collectives hang", remedy, Level.WARN)


def _others(obj: Object, around: LintContext) -> Iterator[Object]:
    """The other policies of the same namespace and input."""
    found = around.kept("policies", lambda: _by_namespace((around.namespace_of(one), one) for one in around.of(*_KIND)))
    return (one for one in found.get(around.namespace_of(obj), []) if one is not obj)


def _gangs(obj: Object, around: LintContext) -> list[Pods]:
    """Pods of the same input that start together and that the policy selects."""
    try:
        selector = selector_in(map_at(obj, "spec"), "podSelector")
    except MalformedError:
        return []
    several = around.kept(
        "gangs", lambda: _by_namespace((one.namespace, one) for one in pods_in(around) if one.batch and (one.number or 0) > 1)
    )
    found = several.get(around.namespace_of(obj), [])
    return [one for one in found if selector is None or selector.matches(texts_at(one.pods.root, "metadata", "labels"))]


def _by_namespace(pairs: Iterable[tuple[str, _One]]) -> dict[str, list[_One]]:
    found: dict[str, list[_One]] = {}
    for namespace, one in pairs:
        found.setdefault(namespace, []).append(one)
    return found


def _let_in(rules: list[Object], labels: Mapping[str, str]) -> bool:
    """Whether a rule lets pods with ``labels`` of the same namespace in."""
    return any(
        "from" not in rule or not rule["from"] or any(_is_peer(one, labels) for _, one in maps_at(rule, "from")) for rule in rules
    )


def _is_peer(peer: Object, labels: Mapping[str, Any]) -> bool:
    if "podSelector" not in peer:
        # A range of addresses or whole namespaces: whether the pods are among them is not to be told from here.
        return True
    try:
        selector = selector_in(peer, "podSelector")
    except MalformedError:
        return True
    return selector is None or selector.matches(labels)
