"""Impossible by the ResourceQuotas and LimitRanges of a namespace: its controller cannot make the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.draft import Box, Draft
from tests.e2e.evidence.edges import main_of, state
from tests.e2e.evidence.feasible import under_limits, under_quota
from tests.e2e.evidence.homes import BOUNDS, HOMES, LIMITS, names
from tests.e2e.evidence.impossible import Evidence, Impossible, above, base, raise_to
from tests.e2e.evidence.quota_ways import gang
from tests.e2e.evidence.sums import quotas_of, usage
from tests.e2e.evidence.world import GIB, GPU, SANDBOX

if TYPE_CHECKING:
    from random import Random

    from tests.e2e.evidence.homes import Limits

_KINDS = ("Job", "Deployment", "StatefulSet")


def _exceeded(draft: Draft, quota: str) -> Impossible:
    return Impossible(draft, Evidence("controller", f"exceeded quota: {quota}", alone=draft.count > 1))


def _in_home(rng: Random, name: str, role: str, count: int, gpus: int) -> Draft:
    draft = gang(name, rng.choice(("h100", "a100")), count, gpus)
    draft.kind, draft.namespace = rng.choice(_KINDS), rng.choice(names(role))
    state(draft.boxes[0], "memory", 8 * GIB)
    state(draft.boxes[0], "cpu", 1000)
    return draft


def requests(rng: Random, name: str) -> Impossible:
    """One pod asks for more memory, or CPU, than its namespace may have."""
    draft = base(rng, name, under_quota)
    draft.kind, draft.count, draft.namespace = rng.choice(_KINDS), 1, rng.choice(names("quota"))
    draft.ends = draft.urgent = False
    resource = rng.choice(("memory", "cpu"))
    hard = HOMES[draft.namespace].quotas[0].hard[f"requests.{resource}"]
    raise_to(draft, main_of(draft), resource, hard + rng.choice((1, 1000, 10_000)))
    return _exceeded(draft, "team")


def requests_together(rng: Random, name: str) -> Impossible:
    """Each pod fits, all of them do not."""
    draft = _in_home(rng, name, "quota", rng.choice((2, 3, 4)), 1)
    resource = rng.choice(("memory", "cpu"))
    hard = HOMES[draft.namespace].quotas[0].hard[f"requests.{resource}"]
    state(draft.boxes[0], resource, hard // draft.count + rng.choice((1, 500)))
    return _exceeded(draft, "team")


def gpus(rng: Random, name: str) -> Impossible:
    """More GPUs in all than the namespace may have."""
    each = rng.choice((1, 2, 4, 8))
    return _exceeded(_in_home(rng, name, "quota", 16 // each + rng.choice((1, 2)), each), "team")


def limits(rng: Random, name: str) -> Impossible:
    """It requests little, and is limited to more than all limits may come to."""
    draft = _in_home(rng, name, "counted", 1, 1)
    resource = rng.choice(("memory", "cpu"))
    hard = HOMES[draft.namespace].quotas[0].hard[f"limits.{resource}"]
    limit = hard + rng.choice((1, 1000))
    draft.boxes[0].limits[resource], draft.boxes[0].requests[resource] = limit, limit * 2 // 3
    return _exceeded(draft, "team")


def pods(rng: Random, name: str) -> Impossible:
    """More pods than there may be."""
    return _exceeded(_in_home(rng, name, "counted", rng.choice((5, 6)), 1), "team")


def scoped(rng: Random, name: str) -> Impossible:
    """More than a quota allows that is about pods with, or without, a deadline, or of a priority class."""
    draft = _in_home(rng, name, "scoped", 1, 1)
    draft.ends, draft.urgent = rng.choice(((False, False), (True, False), (False, True)))
    draft.kind = "Job" if draft.ends else draft.kind
    quota = next(one for one in reversed(quotas_of(draft)) if not draft.urgent or one.scope == "Urgent")
    hard = quota.hard[f"requests.{GPU}"]
    draft.boxes[0].limits[GPU] = rng.choice((1, 2))
    draft.count = hard // draft.boxes[0].limits[GPU] + 1
    return _exceeded(draft, quota.name)


def defaults(rng: Random, name: str) -> Impossible:
    """What it states is within the quota; with what a LimitRange puts in it is not."""
    draft = _in_home(rng, name, "filled", 1, 1)
    draft.boxes.append(Box("helper", "main"))
    resource, stated = rng.choice((("memory", "requests.memory"), ("cpu", "limits.cpu")))
    given, hard = draft.default(resource), HOMES[draft.namespace].quotas[0].hard[stated]
    state(draft.boxes[0], resource, hard - given + rng.randint(1, given))
    return _exceeded(draft, "team")


def overhead(rng: Random, name: str) -> Impossible:
    """Its containers are within the quota; with what their runtime takes they are not."""
    draft = _in_home(rng, name, rng.choice(("quota", "counted")), 1, 1)
    draft.runtime_class = SANDBOX
    quota, resource = HOMES[draft.namespace].quotas[0], rng.choice(("memory", "cpu"))
    stated = next(one for one in quota.hard if one.endswith(f".{resource}"))
    state(draft.boxes[0], resource, quota.hard[stated] - rng.randrange(draft.overhead(resource)))
    assert usage(draft, stated) > quota.hard[stated]
    return _exceeded(draft, "team")


def unstated(rng: Random, name: str) -> Impossible:
    """A container does not state what a quota counts, and no LimitRange puts it in."""
    draft = _in_home(rng, name, rng.choice(("quota", "counted")), 1, 1)
    resource = rng.choice(("memory", "cpu"))
    box = Box("helper", rng.choice(("main", "init", "sidecar")))
    draft.boxes.insert(0, box)
    state(box, "cpu" if resource == "memory" else "memory", 500)
    return Impossible(draft, Evidence("controller", "must specify "))


def _limits_of(draft: Draft) -> Limits:
    found = HOMES[draft.namespace].limits
    assert found
    return found


def _bounded(rng: Random, name: str, home: str) -> tuple[Draft, str]:
    """An object in a namespace with a LimitRange, and memory or CPU."""
    draft = base(rng, name, under_limits)
    while draft.namespace != home:
        draft = base(rng, name, under_limits)
    draft.kind, draft.count = rng.choice(_KINDS), 1
    return draft, rng.choice(("memory", "cpu"))


def container_max(rng: Random, name: str) -> Impossible:
    draft, resource = _bounded(rng, name, LIMITS)
    state(main_of(draft), resource, _limits_of(draft).container_max[resource] + above(rng, resource))
    return Impossible(draft, Evidence("controller", f"maximum {resource} usage per Container"))


def pod_max(rng: Random, name: str) -> Impossible:
    """Each container is within the bounds, the pod is not."""
    draft, resource = _bounded(rng, name, LIMITS)
    bounds = _limits_of(draft)
    draft.boxes = [Box("main", "main", limits={GPU: 1}), Box("helper", "main")]
    for box in draft.boxes:
        for one in ("memory", "cpu"):
            state(box, one, bounds.default[one])
    state(draft.boxes[0], resource, bounds.container_max[resource])
    state(draft.boxes[1], resource, bounds.pod_max[resource] - bounds.container_max[resource] + rng.choice((1, 500)))
    return Impossible(draft, Evidence("controller", f"maximum {resource} usage per Pod"))


def container_min(rng: Random, name: str) -> Impossible:
    # CPU is raised to whole cores by gpugate, which would make it enough.
    draft, _ = _bounded(rng, name, BOUNDS)
    state(rng.choice(draft.boxes), "memory", _limits_of(draft).container_min["memory"] - rng.choice((1, 100)))
    return Impossible(draft, Evidence("controller", "minimum memory usage per Container"))


def pod_min(rng: Random, name: str) -> Impossible:
    """Each container is within the bounds, the pod is not."""
    draft, _ = _bounded(rng, name, BOUNDS)
    bounds = _limits_of(draft)
    draft.boxes = [Box("main", "main", limits={GPU: 1}), Box("helper", "main")]
    for box in draft.boxes:
        state(box, "cpu", bounds.pod_min["cpu"])
    state(draft.boxes[0], "memory", bounds.container_min["memory"])
    state(draft.boxes[1], "memory", bounds.pod_min["memory"] - bounds.container_min["memory"] - rng.choice((1, 100)))
    return Impossible(draft, Evidence("controller", "minimum memory usage per Pod"))


def container_ratio(rng: Random, name: str) -> Impossible:
    """A container may grow too far beyond its request."""
    draft, resource = _growing(rng, name, 1.751, 1.95)
    return Impossible(draft, Evidence("controller", f"{resource} max limit to request ratio per Container"))


def pod_ratio(rng: Random, name: str) -> Impossible:
    """Its container keeps to the ratio of a container, the pod does not keep to its own."""
    draft, resource = _growing(rng, name, 1.51, 1.74)
    return Impossible(draft, Evidence("controller", f"{resource} max limit to request ratio per Pod"))


def _growing(rng: Random, name: str, least: float, most: float) -> tuple[Draft, str]:
    """A pod whose limit is so many times its request, and more than its node has: gpugate cannot raise the request to it."""
    draft, resource = gang(name, "t4", 1, 1), rng.choice(("memory", "cpu"))
    draft.kind, draft.namespace = rng.choice(_KINDS), BOUNDS
    for one in ("memory", "cpu"):
        state(draft.boxes[0], one, draft.pool.room[one] // 2)
    ratio = rng.uniform(least, most)
    request = int(draft.pool.room[resource] / ratio) + rng.choice((100, 300))
    draft.boxes[0].requests[resource], draft.boxes[0].limits[resource] = request, int(request * ratio) + 1
    return draft, resource
