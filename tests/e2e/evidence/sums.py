"""What an object comes to by arithmetic of its own: nothing here knows how gpugate adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.homes import HOMES
from tests.e2e.evidence.queues import FLAVOR_POOL, HOLDERS, most
from tests.e2e.evidence.world import BLOCK, RACK, RUNTIME_CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.evidence.draft import Draft
    from tests.e2e.evidence.homes import Quota
    from tests.e2e.evidence.queues import Holder

#: How many nodes of a pool share a label's value.
_DOMAINS = {RACK: 2, BLOCK: 4}
#: By policy, no more may be promised than so many times what a node has.
_PROMISED = 1.5


def short_of(draft: Draft) -> list[str]:
    """Every way in which the draft cannot run in the empty world; none where it surely can."""
    room, demand = draft.pool.room, {resource: draft.demand(resource) for resource in draft.resources()}
    found = [f"node {resource}" for resource, amount in demand.items() if amount > room.get(resource, 0)]
    if draft.pool.name not in draft.reach or not _runtime_lets(draft):
        found.append("selection")
    if not any(resource.startswith("nvidia.com/") and amount for resource, amount in demand.items()):
        found.append("asks for no device")
    if not any(short.startswith("node ") for short in found) and places(draft) < draft.count:
        found.append("nodes")
    if draft.joins is not None:
        found.append("group")
    return found + _short_of_limits(draft) + _short_of_quotas(draft) + _short_of_queue(draft, demand)


def promises_too_much(draft: Draft) -> bool:
    """Whether the policy lets no node of its pool promise the memory that the pod is limited to; it would run."""
    limits = draft.peak(lambda box: box.limits.get("memory", box.asked("memory")))
    return max(limits, draft.pod_level.get("memory", 0)) + draft.overhead("memory") > _PROMISED * draft.pool.room["memory"]


def _runtime_lets(draft: Draft) -> bool:
    if draft.runtime_class is None:
        return True
    selector = RUNTIME_CLASSES[draft.runtime_class].selector
    return all(draft.pool.name == pool for pool in selector.values())


def places(draft: Draft) -> int:
    """How many of its pods the empty nodes of its pool hold, or of one domain where they must stay together."""
    pool = draft.pool
    demand = {resource: draft.demand(resource) for resource in draft.resources()}
    each = min((pool.room.get(resource, 0) // amount for resource, amount in demand.items() if amount), default=pool.size)
    domain = draft.topology or draft.packed
    return each * (pool.size if domain is None else min(pool.size, _DOMAINS.get(domain, 0)))


def _short_of_limits(draft: Draft) -> list[str]:
    limits = HOMES[draft.namespace].limits
    if limits is None:
        return []
    found = []
    for resource, default in limits.default.items():
        stated = [(box.asked(resource, default), box.limits.get(resource, default)) for box in draft.boxes]
        pod = (draft.requested(resource), draft.limited(resource))
        for who, pairs, highest, lowest, ratio in (
            ("container", stated, limits.container_max, limits.container_min, limits.container_ratio),
            ("pod", [pod], limits.pod_max, limits.pod_min, limits.pod_ratio),
        ):
            if any(limit > highest.get(resource, limit) for _, limit in pairs):
                found.append(f"limit range {who} max {resource}")
            if any(request < lowest.get(resource, 0) for request, _ in pairs):
                found.append(f"limit range {who} min {resource}")
            if resource in ratio and any(limit > ratio[resource] * request for request, limit in pairs):
                found.append(f"limit range {who} ratio {resource}")
        if any(request > limit for request, limit in stated):
            found.append(f"default below request {resource}")
    return found


def quotas_of(draft: Draft) -> list[Quota]:
    """The ResourceQuotas that its pods count against."""
    scopes = {"", "Terminating" if draft.ends else "NotTerminating", *(["Urgent"] if draft.urgent else [])}
    return [quota for quota in HOMES[draft.namespace].quotas if quota.scope in scopes]


def usage(draft: Draft, name: str) -> int:
    """What one pod counts for under a name that quotas use."""
    kind, _, resource = name.partition(".")
    if kind == "pods":
        return 1
    if kind == "requests":
        return draft.demand(resource)
    limited = draft.limited(resource)
    return limited + draft.overhead(resource) if limited else 0


def _short_of_quotas(draft: Draft) -> list[str]:
    found = []
    for quota in quotas_of(draft):
        found += [f"quota {name}" for name, hard in quota.hard.items() if usage(draft, name) * draft.count > hard]
        for name in quota.hard:
            kind, _, resource = name.partition(".")
            if resource not in {"memory", "cpu"} or draft.default(resource):
                continue
            stated = [{*box.limits, *(box.requests if kind == "requests" else ())} for box in draft.boxes]
            found += [f"unstated {name}"] if any(resource not in one for one in stated) else []
    return found


def flavor_of(draft: Draft) -> str | None:
    """The flavor that its queue gives it when nobody else asks for any: the first that its selectors allow and that is enough."""
    if draft.queue is None:
        return None
    for flavor in HOLDERS[draft.queue].flavors:
        if FLAVOR_POOL[flavor] in draft.named and not _beyond(draft, flavor):
            return flavor
    return None


def _beyond(draft: Draft, flavor: str) -> list[str]:
    # Every pod of a Deployment is a workload of its own, yet all of them are to run at once.
    assert draft.queue is not None
    demand = {resource: draft.demand(resource) * draft.count for resource in draft.resources()}
    return [resource for resource, amount in demand.items() if amount and amount > most(draft.queue, resource, flavor)]


def _short_of_queue(draft: Draft, demand: Mapping[str, int]) -> list[str]:
    if draft.queue is None:
        return []
    holder = HOLDERS.get(draft.queue)
    if holder is None or holder.is_cohort:
        return ["queue unknown"]
    if holder.namespace not in {None, draft.namespace}:
        return ["queue namespace"]
    uncovered = [resource for resource, amount in demand.items() if amount and resource not in holder.covered]
    return [f"queue covers no {resource}" for resource in uncovered] or _short_of_flavors(draft, holder)


def _short_of_flavors(draft: Draft, holder: Holder) -> list[str]:
    given = flavor_of(draft)
    if given is None:
        flavors = [flavor for flavor in holder.flavors if FLAVOR_POOL[flavor] in draft.named]
        return [f"queue {resource}" for resource in _beyond(draft, flavors[0])] if flavors else ["queue flavor"]
    if FLAVOR_POOL[given] not in draft.reach:
        return ["queue flavor"]
    return [] if FLAVOR_POOL[given] == draft.pool.name else ["queue gives other nodes"]
