"""Impossible by what queues of Kueue grant, and by what a pool or a domain of a topology holds together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.draft import Box, Draft
from tests.e2e.evidence.edges import least, state
from tests.e2e.evidence.homes import LIMITS, QUEUES
from tests.e2e.evidence.impossible import Evidence, Impossible, above, raise_to
from tests.e2e.evidence.queues import most
from tests.e2e.evidence.sums import places
from tests.e2e.evidence.world import BLOCK, GIB, GPU, POOL, POOLS, RACK, SANDBOX

if TYPE_CHECKING:
    from random import Random


def gang(name: str, pool: str, count: int, gpus: int) -> Draft:
    """A Job whose pods take this many GPUs each, and half their share of the node's memory and CPU."""
    room = POOLS[pool].room
    draft = Draft(name, "Job", POOLS[pool], count, reach=frozenset({pool}), boxes=[Box("main", "main", limits={GPU: gpus})])
    draft.named = draft.reach
    draft.spec = {"nodeSelector": {POOL: pool}, "tolerations": [{"key": GPU, "operator": "Exists"}]}
    for resource, grain in (("memory", GIB), ("cpu", 1000)):
        state(draft.boxes[0], resource, room[resource] * gpus // room[GPU] // 2 // grain * grain)
    return draft


def in_queue(draft: Draft, queue: str) -> Draft:
    """The same in a queue."""
    draft.namespace, draft.queue = QUEUES, queue
    return draft


def _one_of(rng: Random, role: str) -> str:
    return f"ev-{role}-{rng.choice('123')}"


def _too_many_gpus(rng: Random, name: str, role: str, kind: str = "Job") -> Impossible:
    """More GPUs than its queue has and could ever borrow."""
    queue, gpus = _one_of(rng, role), rng.choice((1, 2, 4))
    draft = in_queue(gang(name, "h100", most(queue, GPU, "ev-h100") // gpus + 1 + rng.choice((0, 0, 3)), gpus), queue)
    draft.kind = kind
    return Impossible(draft, Evidence("kueue", f"> maximum capacity ({most(queue, GPU, 'ev-h100')})"))


def borrowing_limit(rng: Random, name: str) -> Impossible:
    """Its cohort has more; its queue may not borrow so much."""
    return _too_many_gpus(rng, name, "alpha")


def borrowing_limit_of_cohort(rng: Random, name: str) -> Impossible:
    """The cohort above that of its queue has more; that of its queue may not borrow so much."""
    return _too_many_gpus(rng, name, "beta")


def lending_limits(rng: Random, name: str) -> Impossible:
    """Others in the tree have more; they lend only a part of it."""
    return _too_many_gpus(rng, name, "gamma")


def several_flavors(rng: Random, name: str) -> Impossible:
    """More than its queue has in any one flavor, though all have it together; it may be given any."""
    queue, gpus = _one_of(rng, "two"), rng.choice((1, 2, 4))
    sums = [most(queue, GPU, flavor) for flavor in ("ev-a100", "ev-h100")]
    draft = in_queue(gang(name, "h100", rng.randint(max(sums) // gpus + 1, sum(sums) // gpus), gpus), queue)
    del draft.spec["nodeSelector"]
    draft.reach = draft.named = frozenset({"a100", "h100"})
    return Impossible(draft, Evidence("kueue", f"> maximum capacity ({max(sums)})"))


def stateful_set(rng: Random, name: str) -> Impossible:
    """Kueue takes the pods of a StatefulSet for one gang."""
    return _too_many_gpus(rng, name, "alpha", "StatefulSet")


def fast_group(rng: Random, name: str) -> Impossible:
    """A group of pods that Kueue counts from its first pod."""
    found = _too_many_gpus(rng, name, "alpha", "Group")
    found.draft.fast = True
    return found


def memory(rng: Random, name: str) -> Impossible:
    """More memory, or CPU, than the quota of its queue, which stands alone."""
    queue, resource = _one_of(rng, "alone"), rng.choice(("memory", "cpu"))
    draft = in_queue(gang(name, "a100", rng.choice((1, 2)), 1), queue)
    state(draft.boxes[0], resource, most(queue, resource) // draft.count + above(rng, resource))
    return Impossible(draft, Evidence("kueue", f"insufficient quota for {resource}"))


def overhead(rng: Random, name: str) -> Impossible:
    """What its containers ask for is all that its queue has; what their runtime takes is too much."""
    queue, resource = _one_of(rng, "alone"), rng.choice(("memory", "cpu"))
    draft = in_queue(gang(name, "a100", rng.choice((1, 2, 4)), 1), queue)
    draft.runtime_class = SANDBOX
    raise_to(draft, draft.boxes[0], resource, most(queue, resource) // draft.count + rng.randint(1, draft.overhead(resource)))
    return Impossible(draft, Evidence("kueue", f"insufficient quota for {resource}"))


def limit_range_default(rng: Random, name: str) -> Impossible:
    """What its containers state is no more than its queue has; with what a LimitRange puts in it is."""
    queue, resource, count = _one_of(rng, "alone"), rng.choice(("memory", "cpu")), rng.choice((2, 4))
    draft = in_queue(gang(name, "a100", count, 1), queue)
    draft.namespace = LIMITS
    draft.boxes.append(Box("helper", "main"))
    for one, amount in (("memory", GIB), ("cpu", 250)):
        if one != resource:
            state(draft.boxes[1], one, amount)
    raise_to(draft, draft.boxes[0], resource, most(queue, resource) // count + rng.randint(1, draft.default(resource)))
    return Impossible(draft, Evidence("kueue", f"insufficient quota for {resource}"))


def covers_not(rng: Random, name: str) -> Impossible:
    """Its queue has quota for GPUs alone."""
    draft = in_queue(gang(name, "a100", 1, 1), _one_of(rng, "gpus-only"))
    draft.kind = rng.choice(("Job", "Pod", "Deployment"))
    return Impossible(draft, Evidence("kueue", "unavailable in ClusterQueue"))


def other_nodes(rng: Random, name: str) -> Impossible:
    """Its queue has quota for other nodes than it selects."""
    draft = in_queue(gang(name, "a100", 1, rng.choice((1, 2))), _one_of(rng, rng.choice(("alpha", "beta", "spot"))))
    draft.spec["tolerations"] = [{"operator": "Exists"}]
    return Impossible(draft, Evidence("kueue", "doesn't match node affinity"))


def taint_of_flavor(rng: Random, name: str) -> Impossible:
    """The nodes of the only flavor of its queue have a taint that it does not tolerate."""
    draft = in_queue(gang(name, "spot", rng.choice((1, 2)), rng.choice((1, 8))), _one_of(rng, "spot"))
    draft.reach = frozenset()
    if rng.random() < 0.5:
        del draft.spec["nodeSelector"]
        draft.named = frozenset(POOLS)
        draft.reach = draft.named - {"spot"}
    return Impossible(draft, Evidence("kueue", "untolerated taint"))


def other_namespace(rng: Random, name: str) -> Impossible:
    """Its queue leads to a ClusterQueue that admits from another namespace."""
    draft = in_queue(gang(name, "a100", 1, 1), _one_of(rng, "others"))
    return Impossible(draft, Evidence("kueue", "Workload namespace doesn't match ClusterQueue selector"))


def topology(rng: Random, name: str) -> Impossible:
    """More pods than one rack, or block, holds, that must be in one: by their GPUs or by their memory."""
    by_memory = rng.random() < 0.5
    draft = in_queue(gang(name, "h100", 1, 1 if by_memory else 8), _one_of(rng, "racks"))
    draft.topology = rng.choice((RACK, BLOCK))
    if by_memory:
        state(draft.boxes[0], "memory", draft.pool.room["memory"] // 2 + rng.choice((1, GIB)))
        state(draft.boxes[0], "cpu", 4000)
    held = places(draft)
    draft.count = held + 1
    return Impossible(draft, Evidence("kueue", f"allows to fit only {held} out of {draft.count} pod(s)", alone=True))


def level_unknown(rng: Random, name: str) -> Impossible:
    """No Topology has the level that it requires."""
    draft = in_queue(gang(name, "h100", rng.choice((1, 2)), 8), _one_of(rng, "racks"))
    draft.topology, draft.count = "evidence.e2e/row", 2
    return Impossible(draft, Evidence("kueue", "does not contain the requested level"))


def beyond_pool(rng: Random, name: str) -> Impossible:
    """More pods than all nodes of its pool hold; some of them start, and wait for the others for ever."""
    pool, gpus = rng.choice(("h100", "a100")), rng.choice((4, 8))
    return _one_more(gang(name, pool, 1, gpus), rng.choice((1, 2)), GPU)


def beyond_pool_by(rng: Random, name: str, resource: str) -> Impossible:
    """The nodes have the GPUs, but not so much memory, or CPU, for as many pods."""
    pool = rng.choice(("h100", "a100", "sliced"))
    draft = gang(name, pool, 1, 1)
    for one in ("memory", "cpu"):
        state(draft.boxes[0], one, 1000)
    state(draft.boxes[0], resource, least(1, draft.pool.room[resource], lambda amount: draft.pool.room[resource] // amount < 2))
    return _one_more(draft, 1, resource)


def beyond_pool_by_memory(rng: Random, name: str) -> Impossible:
    """Each node has room for one pod's memory, a byte less than for two."""
    return beyond_pool_by(rng, name, "memory")


def beyond_pool_by_cpu(rng: Random, name: str) -> Impossible:
    """Each node has room for one pod's CPU, a hair less than for two."""
    return beyond_pool_by(rng, name, "cpu")


def _one_more(draft: Draft, more: int, resource: str) -> Impossible:
    draft.count = places(draft) + more
    return Impossible(draft, Evidence("scheduler", f"Insufficient {resource}", alone=True))


def packed(rng: Random, name: str) -> Impossible:
    """More pods than a rack, or block, holds, which their own affinity keeps in one."""
    draft = gang(name, rng.choice(("h100", "a100", "t4")), 1, 1)
    draft.boxes[0].limits[GPU] = rng.choice([one for one in (4, 8) if one <= draft.pool.room[GPU]] or [1])
    draft.packed = rng.choice((RACK, BLOCK))
    draft.count = places(draft) + rng.choice((1, 2))
    return Impossible(draft, Evidence("scheduler", "didn't match pod affinity rules", alone=True))


def packed_nowhere(rng: Random, name: str) -> Impossible:
    """Their own affinity keeps them in one domain of a label that no node has."""
    draft = gang(name, rng.choice(("h100", "a100")), rng.choice((2, 3)), 1)
    draft.packed = "evidence.e2e/clique"
    return Impossible(draft, Evidence("scheduler", "didn't match pod affinity rules"))
