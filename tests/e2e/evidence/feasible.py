"""Random objects that surely run in the world: drawn at will, then kept if they run by :func:`sums.short_of`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.draft import Box, Draft
from tests.e2e.evidence.edges import to_the_edge
from tests.e2e.evidence.homes import BOUNDS, HOMES, LIMITS, QUEUES, names
from tests.e2e.evidence.queues import CLUSTER_QUEUES, FLAVOR_POOL, most
from tests.e2e.evidence.selecting import place
from tests.e2e.evidence.sums import promises_too_much, quotas_of, short_of
from tests.e2e.evidence.world import A100_SANDBOX, BLOCK, GIB, GPU, POOLS, RACK, SANDBOX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from tests.e2e.evidence.world import Amounts

_FORMS = ("equal", "equal", "burst", "limit", "request", "bare")
_TRIES = 600
_KINDS = ("Pod", "Pod", "Job", "Deployment", "StatefulSet")
_QUEUES = tuple(holder for holder in CLUSTER_QUEUES if holder.namespace is None)


def draw(rng: Random, name: str) -> Draft:
    """One object that runs in the empty world, now and then just so."""
    settle = rng.choices((plain, queued, grouped, under_quota, under_limits), weights=(8, 7, 2, 5, 4))[0]
    draft = draw_in(settle, rng, name)
    if rng.random() < _EDGE:
        to_the_edge(rng, draft)
    return draft


#: What part of the objects is pushed as far as it goes.
_EDGE = 0.4


def draw_in(settle: Callable[[Random, str], Draft], rng: Random, name: str) -> Draft:
    """One object of this setting (:func:`plain`, :func:`queued`, ...) that runs in the empty world."""
    for _ in range(_TRIES):
        draft = settle(rng, name)
        if not short_of(draft) and not promises_too_much(draft):
            return draft
    raise AssertionError(f"the generator drew nothing feasible in {_TRIES} tries")


def plain(rng: Random, name: str) -> Draft:
    """An object that no queue or quota concerns."""
    pool = rng.choice(list(POOLS.values()))
    draft = Draft(name, rng.choice(_KINDS), pool, traits=("plain",))
    _choose_size(rng, draft)
    if draft.count > 1 and rng.random() < 0.2:
        draft.packed = rng.choice((RACK, BLOCK))
        draft.traits = (*draft.traits, "packed")
    place(rng, draft, by_pool=draft.packed is not None)
    fill(rng, draft, pool.room, _FORMS)
    for resource, amount in pool.others.items():
        if rng.random() < 0.5:
            rng.choice([box for box in draft.boxes if box.role == "main"]).limits[resource] = rng.randint(1, amount)
    if rng.random() < 0.15:
        _add_overhead(draft, A100_SANDBOX if pool.name == "a100" and rng.random() < 0.7 else SANDBOX)
    elif rng.random() < 0.15:
        _add_pod_level(draft)
    return draft


def queued(rng: Random, name: str) -> Draft:
    """An object in a queue of Kueue, within what the queue has and can borrow."""
    queue = rng.choice(_QUEUES)
    flavor = rng.choice(list(queue.flavors))
    pool = POOLS[FLAVOR_POOL[flavor]]
    kind = "Job" if queue.topology else rng.choice(("Job", "Job", "Pod", "Deployment", "StatefulSet"))
    draft = Draft(name, kind, pool, namespace=QUEUES, queue=queue.name, traits=("queued", queue.role))
    if kind == "Deployment" and len(queue.flavors) > 1:
        # Its pods come to Kueue one by one, and could be given different flavors.
        draft.kind = "Pod"
    _choose_size(rng, draft)
    all_of_it = kind == "Job" and "memory" in queue.covered and rng.random() < 0.3
    each = _take_all(rng, draft, most(queue.name, GPU, flavor)) if all_of_it else 0
    # Kueue looks at selectors of its flavors' labels alone, and could choose another flavor than others mean.
    place(rng, draft, by_pool=len(queue.flavors) > 1 and rng.random() < 0.7)
    if "memory" not in queue.covered:
        fill(rng, draft, pool.room, ("bare",))
        return draft
    room = _shared_out(draft, {resource: most(queue.name, resource, flavor) for resource in queue.covered})
    fill(rng, draft, room, _FORMS)
    for box in draft.boxes if each else ():
        box.limits |= {GPU: each} if GPU in box.limits else {}
        box.requests |= {GPU: each} if GPU in box.requests else {}
    if queue.topology:
        draft.topology = rng.choice((RACK, BLOCK))
    elif rng.random() < 0.2:
        _add_overhead(draft, SANDBOX)
    return draft


def _shared_out(draft: Draft, most_of: Mapping[str, int]) -> dict[str, int]:
    """The room of a node, or what each pod has of an amount for all, whichever is less."""
    return {resource: min(amount, most_of.get(resource, amount) // draft.count) for resource, amount in draft.pool.room.items()}


def _take_all(rng: Random, draft: Draft, gpus: int) -> int:
    """Make it a gang of just so many GPUs as its queue can ever grant; how many each pod takes."""
    each = rng.choice([one for one in (1, 2, 4, 8) if gpus % one == 0])
    draft.count = gpus // each
    draft.traits = (*draft.traits, "all that the queue can grant")
    return each


def grouped(rng: Random, name: str) -> Draft:
    """Plain pods that are a group of Kueue, and all of which come."""
    queue = rng.choice([holder for holder in _QUEUES if holder.role in {"groups", "beta", "two"}])
    flavor = rng.choice(list(queue.flavors))
    pool = POOLS[FLAVOR_POOL[flavor]]
    draft = Draft(name, "Group", pool, rng.choice((1, 2, 2, 3, 4)), QUEUES, queue.name, traits=("group", queue.role))
    draft.fast = rng.random() < 0.4
    place(rng, draft, by_pool=len(queue.flavors) > 1)
    fill(rng, draft, _shared_out(draft, {one: most(queue.name, one, flavor) for one in queue.covered}), _FORMS)
    return draft


def under_quota(rng: Random, name: str) -> Draft:
    """An object in a namespace with ResourceQuotas."""
    pool = POOLS[rng.choice(("h100", "a100"))]
    home = HOMES[rng.choice(names(rng.choice(("quota", "quota", "counted", "scoped", "filled"))))]
    draft = Draft(name, rng.choice(_KINDS), pool, namespace=home.name, traits=("resource quota", home.role))
    if home.role == "scoped":
        draft.ends, draft.urgent = draft.kind in {"Pod", "Job"} and rng.random() < 0.4, rng.random() < 0.4
    _choose_size(rng, draft)
    place(rng, draft)
    hard: Amounts = {}
    for quota in quotas_of(draft):
        for stated, amount in quota.hard.items():
            resource = stated.partition(".")[2]
            hard[resource] = min(amount, hard.get(resource, amount))
    forms = {"counted": ("equal", "burst", "limit"), "filled": ("equal", "limit", "bare")}
    fill(rng, draft, _shared_out(draft, hard), forms.get(home.role, ("equal", "burst", "limit")))
    if rng.random() < 0.2:
        _add_overhead(draft, SANDBOX)
    return draft


def under_limits(rng: Random, name: str) -> Draft:
    """An object in a namespace with a LimitRange."""
    pool = POOLS[rng.choice(("h100", "a100", "t4"))]
    home = rng.choice((LIMITS, BOUNDS))
    draft = Draft(name, rng.choice(_KINDS), pool, namespace=home, traits=("limit range", home[3:]))
    _choose_size(rng, draft)
    place(rng, draft)
    limits = HOMES[home].limits
    pod_max = limits.pod_max if limits else {}
    room = {resource: min(amount, pod_max.get(resource, amount)) for resource, amount in pool.room.items()}
    fill(rng, draft, room, ("equal", "burst", "limit", "bare"))
    return draft


def _choose_size(rng: Random, draft: Draft) -> None:
    sizes = {"Pod": (1,), "Job": (1, 1, 2, 3, 4)}
    draft.count = rng.choice(sizes.get(draft.kind, (1, 2, 3)))
    draft.parallel = rng.random() < 0.5


def fill(rng: Random, draft: Draft, room: Mapping[str, int], forms: tuple[str, ...]) -> None:
    """Give the draft containers that share out a part of the room, now and then all of it."""
    budget = {resource: _part(rng, room[resource]) for resource in ("memory", "cpu")}
    mains = rng.choice((1, 1, 1, 2, 3))
    roles = [rng.choice(("init", "sidecar")) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    boxes = [Box(f"{role}-{at}", role) for at, role in enumerate([*roles, *["main"] * mains])]
    draft.boxes = boxes
    _give_devices(rng, draft, room)
    staying = [box for box in boxes if box.role != "init"]
    for resource, grain in (("memory", 64), ("cpu", 250)):
        weights = [rng.random() + 0.1 for _ in staying]
        shares = [max(grain, int(budget[resource] * weight / sum(weights)) // grain * grain) for weight in weights]
        held = 0
        for box in boxes:
            if box.role == "init":
                amount = max(grain, int((budget[resource] - held) * rng.choice((0.3, 0.7, 1.0))) // grain * grain)
            else:
                amount = shares[staying.index(box)]
                held += amount if box.role == "sidecar" else 0
            _state(rng, box, resource, amount, rng.choice(forms))


def _part(rng: Random, whole: int) -> int:
    return whole if rng.random() < 0.1 else int(whole * (0.02 + 0.9 * rng.random() ** 2))


def _give_devices(rng: Random, draft: Draft, room: Mapping[str, int]) -> None:
    names = [name for name in draft.pool.devices if room.get(name)] or [GPU]
    for name in rng.sample(names, rng.choice((1, 1, len(names)))):
        have, limit = draft.pool.devices[name], room.get(name, 0)
        # A gang of a Job leaves no fragments on the nodes.
        fitting = [one for one in range(1, min(have, limit) + 1) if draft.kind != "Job" or have % one == 0]
        count = rng.choice(fitting or [1])
        mains = [box for box in draft.boxes if box.role != "init"]
        box = rng.choice(mains)
        box.limits[name] = count
        if rng.random() < 0.5:
            box.requests[name] = count
        inits = [box for box in draft.boxes if box.role == "init"]
        if inits and rng.random() < 0.2:
            rng.choice(inits).limits[name] = count


def _state(rng: Random, box: Box, resource: str, amount: int, form: str) -> None:
    """State the amount in one of the forms that manifests have."""
    if form in {"equal", "burst", "request"}:
        box.requests[resource] = amount
    if form in {"equal", "limit"}:
        box.limits[resource] = amount
    elif form == "burst":
        box.limits[resource] = int(amount * rng.choice((1.25, 1.5, 2)))


def _add_overhead(draft: Draft, runtime_class: str) -> None:
    draft.runtime_class = runtime_class
    draft.traits = (*draft.traits, "overhead")


def _add_pod_level(draft: Draft) -> None:
    """What the containers come to, stated once more for the pod; none of them may have a higher limit."""
    stated: Amounts = {}
    for resource, least in (("memory", GIB), ("cpu", 1000)):
        stated[resource] = max(least, draft.demand(resource), *(box.limits.get(resource, 0) for box in draft.boxes))
    draft.pod_level = stated
    draft.traits = (*draft.traits, "pod level")
