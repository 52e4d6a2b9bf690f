"""Impossible by what nodes have: the scheduler finds none, now or ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.draft import Box, Draft
from tests.e2e.evidence.edges import main_of, state
from tests.e2e.evidence.feasible import queued
from tests.e2e.evidence.homes import LIMITS
from tests.e2e.evidence.impossible import Evidence, Impossible, above, base, for_ever, raise_to, widest
from tests.e2e.evidence.world import A100_SANDBOX, EFA, GIB, GPU, MIG_SMALL, POOL, POOLS, SANDBOX

if TYPE_CHECKING:
    from random import Random


def _push(rng: Random, draft: Draft, box: Box, resource: str) -> Impossible:
    """Make the box ask for so much that the pod is more than its widest node."""
    raise_to(draft, box, resource, widest(draft, resource) + above(rng, resource))
    return Impossible(draft, for_ever(resource))


def memory(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    return _push(rng, draft, main_of(draft), "memory")


def cpu(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    return _push(rng, draft, main_of(draft), "cpu")


def devices(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    resource = next(one for one in draft.resources() if one.startswith("nvidia.com/"))
    for box in draft.boxes:
        box.requests.pop(resource, None)
        box.limits.pop(resource, None)
    main_of(draft).limits[resource] = widest(draft, resource) + above(rng, resource)
    return Impossible(draft, for_ever(resource))


def init_container(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    box = Box("prepare", "init")
    draft.boxes.insert(rng.randrange(sum(1 for one in draft.boxes if one.role != "main") + 1), box)
    return _push(rng, draft, box, rng.choice(("memory", "cpu")))


def sidecar(rng: Random, name: str) -> Impossible:
    """The sidecar would fit, and so would the others, but not both."""
    draft = base(rng, name)
    resource = rng.choice(("memory", "cpu"))
    box = Box("proxy", "sidecar")
    draft.boxes.insert(0, box)
    return _push(rng, draft, box, resource)


def overhead(rng: Random, name: str) -> Impossible:
    """The containers fit to the last byte; what their runtime takes does not."""
    draft = base(rng, name)
    draft.kind, draft.count, draft.runtime_class = "Pod", 1, SANDBOX
    return _tip_by_overhead(rng, draft)


def overhead_of_template(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    draft.kind, draft.count, draft.runtime_class = "Job", 1, SANDBOX
    return _tip_by_overhead(rng, draft)


def _tip_by_overhead(rng: Random, draft: Draft) -> Impossible:
    resource = rng.choice(("memory", "cpu"))
    raise_to(draft, main_of(draft), resource, widest(draft, resource) + 1 + rng.randrange(draft.overhead(resource)))
    return Impossible(draft, for_ever(resource))


def pod_level(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    resource = rng.choice(("memory", "cpu"))
    for one in ("memory", "cpu"):
        draft.pod_level[one] = max(1000, draft.demand(one), *(box.limits.get(one, 0) for box in draft.boxes))
    draft.pod_level[resource] = max(draft.pod_level[resource], widest(draft, resource) + above(rng, resource))
    return Impossible(draft, for_ever(resource))


def _pinned(rng: Random, name: str, pool: str) -> Draft:
    """An object with one container, in this pool alone."""
    draft = base(rng, name)
    draft.pool, draft.reach = POOLS[pool], frozenset({pool})
    draft.count = min(draft.count, POOLS[pool].size)
    draft.named = draft.reach
    draft.spec = {"nodeSelector": {POOL: pool}, "tolerations": [{"key": GPU, "operator": "Exists"}]}
    draft.boxes = [Box("main", "main", limits={GPU: 1})]
    for resource in ("memory", "cpu"):
        state(draft.boxes[0], resource, draft.pool.room[resource] // 16)
    return draft


def selected_too_small(rng: Random, name: str) -> Impossible:
    """Other nodes would hold it; those that it selects do not."""
    draft = _pinned(rng, name, rng.choice(("a100", "t4")))
    resource = rng.choice(("memory", "cpu"))
    room = (draft.pool.room[resource], POOLS["h100"].room[resource])
    state(draft.boxes[0], resource, rng.randrange(room[0] + 1, room[1] + 1))
    return Impossible(draft, for_ever(resource))


def taint_before_the_large(rng: Random, name: str) -> Impossible:
    """Only the spot nodes would hold it, and their taint is not tolerated."""
    draft = _pinned(rng, name, "h100")
    draft.reach = frozenset(POOLS) - {"spot"}
    del draft.spec["nodeSelector"]
    resource = rng.choice(("memory", "cpu"))
    room = (draft.pool.room[resource], POOLS["spot"].room[resource])
    state(draft.boxes[0], resource, rng.randrange(room[0] + 1, room[1] + 1))
    return Impossible(draft, for_ever(resource))


def no_node_has_both(rng: Random, name: str) -> Impossible:
    """Some nodes have the slices, others the memory."""
    draft = _pinned(rng, name, "sliced")
    draft.reach = frozenset(POOLS) - {"spot"}
    del draft.spec["nodeSelector"]
    draft.boxes[0].limits = {MIG_SMALL: rng.randint(1, 14)}
    state(draft.boxes[0], "cpu", 1000)
    state(draft.boxes[0], "memory", rng.randrange(draft.pool.room["memory"] + 1, POOLS["h100"].room["memory"]))
    return Impossible(draft, for_ever(MIG_SMALL))


def unserved_name(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    wrong = rng.choice(("nvidia.com/gpu.mig-1g.5gb", "nvidia.com/mig-1g5gb"))
    for box in draft.boxes:
        box.requests = {one: amount for one, amount in box.requests.items() if "/" not in one}
        box.limits = {one: amount for one, amount in box.limits.items() if "/" not in one}
    main_of(draft).limits[wrong] = 1
    return Impossible(draft, for_ever(wrong))


def no_such_queue(rng: Random, name: str) -> Impossible:
    draft = base(rng, name, queued)
    draft.queue = "ev-nowhere"
    return Impossible(draft, Evidence("kueue", "LocalQueue ev-nowhere doesn't exist"))


def selects_nothing(rng: Random, name: str) -> Impossible:
    draft = base(rng, name)
    draft.spec.pop("affinity", None)
    draft.spec["nodeSelector"] = {rng.choice((POOL, "nvidia.com/gpu.product")): "nowhere"}
    draft.reach = frozenset()
    return Impossible(draft, Evidence("scheduler, for ever", "didn't match Pod's node affinity/selector"))


def tolerates_nothing(rng: Random, name: str) -> Impossible:
    """It selects the spot nodes and does not tolerate their taint."""
    draft = _pinned(rng, name, "spot")
    draft.reach = frozenset()
    return Impossible(draft, Evidence("scheduler, for ever", "untolerated taint"))


def not_offered(rng: Random, name: str) -> Impossible:
    draft = _pinned(rng, name, "sliced")
    wanted = rng.choice(("nvidia.com/mig-7g.40gb", "amd.com/gpu"))
    draft.boxes[0].limits = {wanted: 1} | {one: draft.boxes[0].limits[one] for one in ("cpu", "memory")}
    return Impossible(draft, for_ever(wanted))


def other_extended_resource(rng: Random, name: str) -> Impossible:
    """More network cards than any node with its accelerators has."""
    draft = _pinned(rng, name, "h100")
    if rng.random() < 0.5:
        draft.spec.pop("nodeSelector")
        draft.reach = frozenset(POOLS) - {"spot"}
    main_of(draft).limits[EFA] = POOLS["h100"].room[EFA] + rng.choice((1, 2, 32))
    return Impossible(draft, for_ever(EFA))


def limit_range_default(rng: Random, name: str) -> Impossible:
    """What it states fits; what the LimitRange gives to the container that states nothing does not."""
    draft = _pinned(rng, name, "t4")
    draft.kind, draft.count, draft.namespace = rng.choice(("Pod", "Job", "Deployment")), 1, LIMITS
    draft.boxes.append(Box("helper", "main"))
    resource = rng.choice(("memory", "cpu"))
    for one, amount in (("memory", GIB), ("cpu", 250)):
        if one != resource:
            state(draft.boxes[1], one, amount)
    room, given = draft.pool.room[resource], draft.default(resource)
    state(draft.boxes[0], resource, room - given + rng.randint(1, given))
    return Impossible(draft, for_ever(resource))


def runtime_class_selects(rng: Random, name: str) -> Impossible:
    """Other nodes would hold it; those that its RuntimeClass selects do not."""
    draft = _pinned(rng, name, "a100")
    del draft.spec["nodeSelector"]
    draft.runtime_class, draft.named = A100_SANDBOX, frozenset(POOLS)
    resource = rng.choice(("memory", "cpu"))
    least, most = draft.pool.room[resource] - draft.overhead(resource), POOLS["h100"].room[resource]
    state(draft.boxes[0], resource, rng.randrange(least + 1, most - draft.overhead(resource)))
    return Impossible(draft, for_ever(resource))


def runtime_class_contradicts(rng: Random, name: str) -> Impossible:
    """It selects one pool, its RuntimeClass another."""
    draft = _pinned(rng, name, rng.choice(("h100", "t4")))
    draft.kind, draft.runtime_class = rng.choice(("Job", "Deployment")), A100_SANDBOX
    return Impossible(draft, Evidence("controller", "conflict: runtimeClass.scheduling.nodeSelector"))
