"""Sending objects to the cluster, in batches that fit together, and clearing up after them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from tests.e2e.controlplane.waiting import wait_until
from tests.e2e.evidence.draft import LABEL
from tests.e2e.evidence.homes import HOMES
from tests.e2e.evidence.observe import WORKLOADS, WORKLOADS_IN, look
from tests.e2e.evidence.queues import root_of
from tests.e2e.evidence.sums import places
from tests.e2e.evidence.world import GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse
    from tests.e2e.evidence.draft import Draft
    from tests.e2e.evidence.observe import Seen

_SENDERS = 6
FINALIZER = "kueue.x-k8s.io/managed"
#: Objects at once; more would only wait for one another.
_MOST = 40
#: What share of a pool's nodes one batch may fill.
_FILL = 0.6
#: Seconds without any change after which what does not run yet is tried alone.
_STALLED = 3.0
_ALONE = 10.0


@dataclass
class Disagreement:
    """An object of which gpugate and the cluster say different things."""

    seed: int
    what: str
    draft: Draft
    gpugate: str
    cluster: str
    untouched: str = "not tried"

    def text(self) -> str:
        """All that is needed to see it again."""
        sent = orjson.dumps(self.draft.manifests()[0]).decode()
        traits = ", ".join(self.draft.traits)
        lines = [f"{self.draft.name} (seed {self.seed}; {traits}): {self.what}", f"gpugate: {self.gpugate}"]
        return "\n  ".join([*lines, f"cluster: {self.cluster}", f"without gpugate: {self.untouched}", f"sent: {sent}"])


@dataclass
class Batch:
    """Objects that have room beside one another."""

    drafts: list[Draft] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    filled: dict[str, float] = field(default_factory=dict)
    crowded: set[str] = field(default_factory=set)

    def takes(self, draft: Draft) -> bool:
        """Take the object in, if there is room for it."""
        tokens, cost, pool = tokens_of(draft), cost_of(draft), draft.pool.name
        filled, crowds = self.filled.get(pool, 0), crowds_its_pool(draft)
        if len(self.drafts) >= _MOST or self.tokens & tokens or draft.reach & self.crowded:
            return False
        if any(pool in one.reach for one in self.drafts) if crowds else filled and filled + cost > _FILL * draft.pool.size:
            return False
        self.drafts.append(draft)
        self.tokens |= tokens
        self.filled[pool] = filled + cost
        self.crowded |= {pool} if crowds else set()
        return True


def crowds_its_pool(draft: Draft) -> bool:
    """Whether it needs so much of the nodes that it may land on that others would be in its way."""
    bound = len(draft.reach) == 1 or draft.queue or draft.topology or draft.packed
    return bool(bound) and 2 * draft.count > places(draft)


def tokens_of(draft: Draft) -> set[str]:
    """What the object must have for itself alone: the quota of its namespace, or of its queue's whole cohort."""
    found = {draft.namespace} if HOMES[draft.namespace].quotas else set()
    return found | ({root_of(draft.queue)} if draft.queue else set())


def cost_of(draft: Draft) -> float:
    """How many nodes the object takes: a pod of more than a third of a node counts for a whole one."""
    room = draft.pool.room
    part = max(draft.demand(resource) / room.get(resource, 1) for resource in draft.resources())
    return draft.count * (1.0 if part > 0.34 else part)


def batches(drafts: Iterable[Draft]) -> list[Batch]:
    """The objects in batches, the largest of each first."""
    found: list[Batch] = []
    for draft in sorted(drafts, key=cost_of, reverse=True):
        if not any(batch.takes(draft) for batch in found):
            found.append(Batch())
            found[-1].takes(draft)
    return found


def send_all(cluster: ControlPlane, drafts: list[Draft], *, dry_run: bool = False) -> dict[str, ApiResponse]:
    """Create the objects; what the apiserver answered, by name."""
    query = "?dryRun=All" if dry_run else ""

    def send(draft: Draft) -> tuple[str, ApiResponse]:
        answers = [cluster.request("POST", draft.path() + query, one) for one in draft.manifests()]
        return draft.name, next((one for one in answers if one.status != 201), answers[-1])

    with ThreadPoolExecutor(_SENDERS) as pool:
        return dict(pool.map(send, drafts))


def clear(cluster: ControlPlane) -> None:
    """Delete every object of the evidence, and wait until nothing of them is left."""
    chosen = f"labelSelector={LABEL}"

    def delete(path: str) -> None:
        cluster.request("DELETE", path, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})

    kinds = (
        "apis/batch/v1/namespaces/{}/jobs",
        "apis/apps/v1/namespaces/{}/deployments",
        "apis/apps/v1/namespaces/{}/statefulsets",
    )
    with ThreadPoolExecutor(_SENDERS) as pool:
        list(pool.map(delete, [f"/{kind.format(name)}?{chosen}" for kind in kinds for name in HOMES]))
        list(pool.map(delete, [f"/api/v1/namespaces/{name}/events" for name in HOMES]))

    def left() -> int:
        pods: list[dict[str, Any]] = cluster.request("GET", f"/api/v1/pods?{chosen}").body["items"]
        workloads = cluster.request("GET", WORKLOADS).body["items"]
        if pods or workloads:
            # Controllers may have made a last pod meanwhile; what is on its way is not deleted again.
            homes = {one["metadata"]["namespace"] for one in (*pods, *workloads) if "deletionTimestamp" not in one["metadata"]}
            with ThreadPoolExecutor(_SENDERS) as pool:
                list(pool.map(delete, [f"/api/v1/namespaces/{name}/pods?{chosen}" for name in homes]))
                list(pool.map(delete, [WORKLOADS_IN.format(name) for name in homes]))
                list(pool.map(release, [pod["metadata"] for pod in pods if "deletionTimestamp" in pod["metadata"]]))
        quota_used = bool(pods) or _uses_quota(cluster)
        return len(pods) + len(workloads) + quota_used

    def release(metadata: dict[str, Any]) -> None:
        # Kueue keeps a deleted pod of a group that is not admitted, until another takes its place.
        if FINALIZER in metadata.get("finalizers", []):
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            kept = [one for one in metadata["finalizers"] if one != FINALIZER]
            change = {"metadata": {"finalizers": kept or None}}
            cluster.request("PATCH", path, change, content_type="application/merge-patch+json")

    wait_until(lambda: not left(), 60, "the objects of the last batch to go", interval=0.1)


def _uses_quota(cluster: ControlPlane) -> bool:
    quotas = cluster.request("GET", "/api/v1/resourcequotas").body["items"]
    ours = [one.get("status", {}).get("used", {}) for one in quotas if one["metadata"]["namespace"] in HOMES]
    return any(amount != "0" for used in ours for amount in used.values())


def run(cluster: ControlPlane, drafts: list[Draft]) -> tuple[dict[str, ApiResponse], dict[str, Seen]]:
    """Create the objects and wait until all run, or nothing changes any more; answers, and what was last seen of those left."""
    answers = send_all(cluster, drafts)
    waiting = [draft for draft in drafts if answers[draft.name].status == 201]
    seen: dict[str, Seen] = {}
    limit = _STALLED if len(drafts) > 1 else _ALONE
    state, since = "", time.monotonic()
    while waiting and time.monotonic() - since < limit:
        seen = look(cluster, waiting)
        waiting = [draft for draft in waiting if seen[draft.name].running < draft.count]
        now = " ".join(f"{draft.name}={seen[draft.name].running}/{len(seen[draft.name].pods)}" for draft in waiting)
        if now != state:
            state, since = now, time.monotonic()
        time.sleep(0.1)
    return answers, {draft.name: seen[draft.name] for draft in waiting}


def feasible_disagreements(
    cluster: ControlPlane, seed: int, drafts: list[Draft], report: Callable[[str], None]
) -> list[Disagreement]:
    """Create objects that can run, all rules enforced: every one that is refused, or that does not run though it is alone."""
    found: list[Disagreement] = []
    alone: list[Draft] = []
    formed = batches(drafts)
    for number, batch in enumerate(formed, 1):
        begun = time.monotonic()
        answers, left = run(cluster, batch.drafts)
        by_name = {draft.name: draft for draft in batch.drafts}
        found += [_refused(seed, by_name[name], answer) for name, answer in answers.items() if answer.status != 201]
        alone += [by_name[name] for name in left]
        clear(cluster)
        report(f"batch {number}/{len(formed)}: {len(batch.drafts)} objects, {len(left)} left, {time.monotonic() - begun:.1f} s")
    for draft in alone:
        answers, left = run(cluster, [draft])
        found += [
            Disagreement(seed, "never ran, alone in the cluster", draft, _warnings(answers[draft.name]), seen.story())
            for seen in left.values()
        ]
        clear(cluster)
    report(f"{len(alone)} objects were tried again alone")
    return found


def run_untouched(cluster: ControlPlane, found: list[Disagreement]) -> None:
    """Send each object of a disagreement once more while gpugate changes nothing: whose fault it is.

    The toleration that gpugate would add is written in: without it no GPU pod is placed anywhere.
    """
    for one in found:
        answers, left = run(cluster, [with_toleration(one.draft)])
        answer = answers[one.draft.name]
        if answer.status != 201:
            outcome = f"the apiserver does not take it: {answer.body.get('message')}; the generator is wrong"
        elif left:
            outcome = f"does not run either: {left[one.draft.name].story()}; the generator is wrong"
        else:
            outcome = "runs as it was sent: gpugate's doing"
        one.untouched = outcome
        clear(cluster)


def with_toleration(draft: Draft) -> Draft:
    """The same object, tolerating the taint of GPU nodes."""
    tolerations = draft.spec.get("tolerations", [])
    return replace(draft, spec={**draft.spec, "tolerations": [*tolerations, {"key": GPU, "operator": "Exists"}]})


def _refused(seed: int, draft: Draft, answer: ApiResponse) -> Disagreement:
    message = str(answer.body.get("message", answer.body))
    if "gpugate refuses" in message:
        return Disagreement(seed, "refused, though it can run", draft, message, "runs by the sums")
    return Disagreement(seed, "not taken once rewritten", draft, "no objection", message)


def _warnings(answer: ApiResponse) -> str:
    return "let it in" + (f"; warned: {' | '.join(answer.warnings)}" if answer.warnings else ", without a warning")
