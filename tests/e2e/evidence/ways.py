"""Ways in which an object can be impossible: each takes one that can run, and pushes one thing over the edge.

A new way is one function in ``node_ways``, ``quota_ways``, ``home_ways`` or ``group_ways``, and one line in :data:`WAYS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tests.e2e.evidence import group_ways, home_ways, node_ways, quota_ways
from tests.e2e.evidence.sums import short_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.e2e.evidence.impossible import Impossible

_TRIES = 300


@dataclass(frozen=True)
class Answer:
    """What gpugate must say: refuse or warn, by which rule, with which words."""

    kind: Literal["refused", "warned"]
    rule: str = ""
    text: str = ""


@dataclass(frozen=True)
class Way:
    """One way of being impossible.

    Attributes:
        short: what :func:`short_of` must say, and nothing else.
    """

    name: str
    make: Callable[[Random, str], Impossible]
    short: str
    answer: Answer

    def draw(self, rng: Random, name: str) -> Impossible:
        """An object that is impossible in this way and in no other."""
        for _ in range(_TRIES):
            one = self.make(rng, name)
            short = short_of(one.draft)
            if short and all(text.startswith(self.short) for text in short):
                one.draft.traits = (self.name,)
                return one
        raise AssertionError(f"{self.name} drew nothing in {_TRIES} tries")


_NEVER_FITS = Answer("refused", "host-memory", "can ever hold the pod")
_NONE_SELECTED = Answer("warned", "node-terms", "nodes that offer")


def _by(rule: str, text: str) -> Answer:
    return Answer("refused", rule, text)


_NEVER_GRANTED = _by("queue-quota", "could ever have in flavor")
_DOMAIN = _by("gang-packing", "must run in one domain of")
_POOL = _by("gang-packing", "when empty, these hold ")
_HARD = _by("namespace-limits", "the hard limit of ResourceQuota")
_RATIO = _by("namespace-limits", "the ratio that LimitRange")

WAYS: tuple[Way, ...] = (
    Way("memory", node_ways.memory, "node ", _NEVER_FITS),
    Way("cpu", node_ways.cpu, "node ", _NEVER_FITS),
    Way("devices", node_ways.devices, "node ", _NEVER_FITS),
    Way("init container", node_ways.init_container, "node ", _NEVER_FITS),
    Way("sidecar", node_ways.sidecar, "node ", _NEVER_FITS),
    Way("overhead", node_ways.overhead, "node ", _NEVER_FITS),
    Way("pod level", node_ways.pod_level, "node ", _NEVER_FITS),
    Way("selected nodes too small", node_ways.selected_too_small, "node ", _NEVER_FITS),
    Way("taint before the large nodes", node_ways.taint_before_the_large, "node ", _NEVER_FITS),
    Way("no node has both", node_ways.no_node_has_both, "node ", _NEVER_FITS),
    Way("unserved name", node_ways.unserved_name, "node ", Answer("refused", "accelerator-names", "no device plugin provides")),
    Way("no such queue", node_ways.no_such_queue, "queue unknown", Answer("refused", "queue", "has no LocalQueue ev-nowhere")),
    # Nodes may come that match: these are let in, with a warning.
    Way("selects nothing", node_ways.selects_nothing, "selection", _NONE_SELECTED),
    Way("tolerates nothing", node_ways.tolerates_nothing, "selection", _NONE_SELECTED),
    Way("not offered", node_ways.not_offered, "node ", Answer("warned", "accelerator-names", "no node offers")),
    Way("overhead of a template", node_ways.overhead_of_template, "node ", _NEVER_FITS),
    Way("other extended resource", node_ways.other_extended_resource, "node ", _NEVER_FITS),
    Way("default of a limit range", node_ways.limit_range_default, "node ", _NEVER_FITS),
    Way("runtime class selects", node_ways.runtime_class_selects, "node ", _NEVER_FITS),
    Way("runtime class contradicts", node_ways.runtime_class_contradicts, "selection", _by("host-memory", "RuntimeClass")),
    Way("queue: borrowing limit", quota_ways.borrowing_limit, "queue", _NEVER_GRANTED),
    Way("queue: borrowing limit of a cohort", quota_ways.borrowing_limit_of_cohort, "queue", _NEVER_GRANTED),
    Way("queue: lending limits", quota_ways.lending_limits, "queue", _NEVER_GRANTED),
    Way("queue: several flavors", quota_ways.several_flavors, "queue", _NEVER_GRANTED),
    Way("queue: StatefulSet", quota_ways.stateful_set, "queue", _NEVER_GRANTED),
    Way("queue: group of pods", quota_ways.fast_group, "queue", _NEVER_GRANTED),
    Way("queue: memory", quota_ways.memory, "queue", _NEVER_GRANTED),
    Way("queue: overhead", quota_ways.overhead, "queue", _NEVER_GRANTED),
    Way("queue: default of a limit range", quota_ways.limit_range_default, "queue", _NEVER_GRANTED),
    Way("queue: not covered", quota_ways.covers_not, "queue covers no", _by("queue-quota", "covers no")),
    Way("queue: other nodes", quota_ways.other_nodes, "queue flavor", _by("queue-quota", "do not match the pods'")),
    Way("queue: taint of its flavor", quota_ways.taint_of_flavor, "", _by("queue-quota", "is not tolerated")),
    Way(
        "queue: other namespace", quota_ways.other_namespace, "queue namespace", _by("queue-quota", "admits nothing from namespace")
    ),
    Way("topology", quota_ways.topology, "nodes", _DOMAIN),
    Way("topology: unknown level", quota_ways.level_unknown, "nodes", _by("gang-packing", "has the topology level")),
    Way("packed by affinity", quota_ways.packed, "nodes", _DOMAIN),
    Way("packed by affinity: unknown label", quota_ways.packed_nowhere, "nodes", _by("gang-packing", "has the label")),
    Way("gang beyond its pool", quota_ways.beyond_pool, "nodes", _POOL),
    Way("gang beyond its pool: memory", quota_ways.beyond_pool_by_memory, "nodes", _POOL),
    Way("gang beyond its pool: cpu", quota_ways.beyond_pool_by_cpu, "nodes", _POOL),
    Way("group: one too many", group_ways.one_too_many, "group", _by("gang-members", "the gang ")),
    Way("group: other size", group_ways.other_size, "group", _by("gang-members", "its other members state")),
    Way("quota: requests", home_ways.requests, "quota", _HARD),
    Way("quota: requests together", home_ways.requests_together, "quota", _HARD),
    Way("quota: GPUs", home_ways.gpus, "quota", _HARD),
    Way("quota: limits", home_ways.limits, "quota", _HARD),
    Way("quota: pods", home_ways.pods, "quota pods", _HARD),
    Way("quota: scopes", home_ways.scoped, "quota", _HARD),
    Way("quota: defaults", home_ways.defaults, "quota", _HARD),
    Way("quota: overhead", home_ways.overhead, "quota", _HARD),
    Way("quota: unstated", home_ways.unstated, "unstated", _by("namespace-limits", "so the API server rejects the pod")),
    Way("limit range: container max", home_ways.container_max, "limit range", _by("namespace-limits", "allows a container")),
    Way("limit range: pod max", home_ways.pod_max, "limit range pod max", _by("namespace-limits", "allows a pod")),
    Way("limit range: container min", home_ways.container_min, "limit range", _by("namespace-limits", "demands of a container")),
    Way("limit range: pod min", home_ways.pod_min, "limit range pod min", _by("namespace-limits", "demands of a pod")),
    Way("limit range: container ratio", home_ways.container_ratio, "limit range", _RATIO),
    Way("limit range: pod ratio", home_ways.pod_ratio, "limit range pod ratio", _RATIO),
)
