"""The status of GPUPolicies: what it says, and when it is written."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gpugate.policies.cluster.builder import key_of
from gpugate.policies.findings import Mode
from gpugate.policies.policy.failing_closed import MOST_REGIONS
from gpugate.policies.policy.models import API_VERSION, KIND
from gpugate.policies.rules.registry import RULES
from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.policy_status import PolicyStatusReconciler
from gpugate.webhook.kube.errors import ApiError, ConnectionLostError
from gpugate.webhook.kube.event_series import Reference
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

NAMESPACES = next(kind for kind in FACT_KINDS if kind.resource == "namespaces")


class Cluster:
    """An apiserver that keeps statuses, and a controller's view of it; the watch shows what was written when told to."""

    def __init__(self, *policies: JsonObject, namespaces: int = 2) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.patches: list[tuple[str, JsonObject]] = []
        self.reason_and_message: list[tuple[str, str, str, str]] = []
        self.error: Exception | None = None
        self.time = "2026-01-01T00:00:00Z"
        self.state = CurrentState()
        log = Log(io.StringIO())
        self.store = SnapshotStore(self.state, log, [NAMESPACES, POLICIES])
        self.start()
        named = [{"metadata": {"name": f"team-{at}", "labels": {"team": str(at)}}} for at in range(namespaces)]
        self.store.replaced(NAMESPACES, [reducer_for(NAMESPACES)(one) for one in named])
        for one in policies:
            self.objects[key_of(one)[1]] = one
        self.relist()

    def start(self) -> None:
        """Another controller takes over."""
        log = Log(io.StringIO())
        self.writer = PolicyStatusReconciler(self, self.store, self.state, log, events=self, clock=lambda: self.time)

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: str) -> None:
        assert (regarding.kind, action) == (KIND, "Validate")
        self.reason_and_message.append((regarding.name, kind, reason, message))

    async def patch(self, path: str, patch: JsonObject, /) -> JsonObject:
        if self.error is not None:
            raise self.error
        name = path.removesuffix("/status").rpartition("/")[2]
        assert path == f"/apis/gpugate.io/v1alpha1/gpupolicies/{name}/status"
        before = self.objects[name]
        assert patch["metadata"] == {"resourceVersion": before["metadata"]["resourceVersion"]}
        self.patches.append((name, patch["status"]))
        status = {key: value for key, value in {**before.get("status", {}), **patch["status"]}.items() if value is not None}
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        self.objects[name] = {**before, "metadata": {**before["metadata"], "resourceVersion": version}, "status": status}
        return self.objects[name]

    def relist(self) -> None:
        self.store.replaced(POLICIES, [reducer_for(POLICIES)(one) for one in self.objects.values()])
        self.store.publish()

    def apply(self, one: JsonObject) -> None:
        name = key_of(one)[1]
        before = self.objects.get(name, {})
        version = str(int(before.get("metadata", {}).get("resourceVersion", "0")) + 1)
        self.objects[name] = {**before, **one, "metadata": {**one["metadata"], "resourceVersion": version}}
        self.store.changed(POLICIES, "MODIFIED", reducer_for(POLICIES)(self.objects[name]))
        self.store.publish()

    async def gather(self) -> None:
        """Write until nothing is left to write, the watch showing each time what was written."""
        for _ in range(3):
            await self.writer.write()
            self.relist()
        number = len(self.patches)
        await self.writer.write()
        assert len(self.patches) == number

    def status(self, name: str = "p") -> JsonObject:
        return dict(self.objects[name]["status"])

    def condition(self, kind: str = "Ready", name: str = "p") -> JsonObject:
        (found,) = [one for one in self.status(name)["conditions"] if one["type"] == kind]
        return dict(found)


def gpu_policy(name: str = "p", *, generation: int = 1, uid: str = "u", **spec: Any) -> JsonObject:
    metadata = {"name": name, "generation": generation, "uid": uid, "resourceVersion": "1"}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


GOOD = {"mode": "DryRun", "rules": {"numa": {"mode": "Enforce"}}}
# Rules that are off where no policy names them are bound to nothing.
BOUND = sum(rule.default_max_mode is not Mode.DISABLED for rule in RULES)
COUNTS = f"1 Enforce, {BOUND - 1} DryRun"


@pytest.mark.asyncio
async def test_a_good_policy_is_ready_and_says_what_it_binds() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    await cluster.gather()
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "InForce",
        "message": f"Generation 1 is in force: it binds {BOUND} rules ({COUNTS}) in 2 namespaces.",
        "observedGeneration": 1,
        "lastTransitionTime": cluster.time,
    }
    assert cluster.status() == {
        "observedGeneration": 1,
        "generationInForce": 1,
        "matchedNamespaces": 2,
        "rules": COUNTS,
        "conditions": [condition],
    }
    assert len(cluster.patches) == 1
    assert cluster.reason_and_message == []


@pytest.mark.asyncio
async def test_a_generation_that_reviews_are_not_judged_by_yet_is_not_said_to_be_in_force() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    await cluster.gather()
    newer = {**gpu_policy(generation=2, mode="Mutate"), "status": cluster.status()}
    cluster.objects["p"] = newer | {"metadata": {**newer["metadata"], "resourceVersion": "7"}}
    cluster.store.changed(POLICIES, "MODIFIED", reducer_for(POLICIES)(cluster.objects["p"]))
    assert await cluster.writer.write()
    assert cluster.condition()["observedGeneration"] == 1
    cluster.store.publish()
    assert await cluster.writer.write()
    assert cluster.condition()["observedGeneration"] == 2
    assert f"{BOUND} Mutate" in cluster.condition()["message"]


@pytest.mark.parametrize(
    ("policies", "text"),
    [
        ([gpu_policy()], "binds nothing: it names no rule and sets no mode."),
        (
            [gpu_policy(mode="Enforce", match={"namespaceSelector": {"matchLabels": {"team": "none"}}})],
            "binds nothing: its namespaceSelector selects no namespace.",
        ),
        (
            [gpu_policy(mode="Enforce"), gpu_policy("high", mode="Mutate", priority=1)],
            "binds nothing: for each of its rules another policy has precedence (high).",
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_policy_that_binds_nothing_is_ready_and_says_why(policies: list[JsonObject], text: str) -> None:
    cluster = Cluster(*policies)
    await cluster.gather()
    assert cluster.condition()["status"] == "True"
    assert cluster.condition()["message"].endswith(text)


@pytest.mark.asyncio
async def test_a_policy_lists_the_namespaces_in_which_it_is_enforced_and_webhooks_fail_open() -> None:
    teams = [
        gpu_policy(f"p{at:02}", uid=f"u{at}", mode="Enforce", match={"namespaceSelector": {"matchLabels": {f"team-{at}": "yes"}}})
        for at in range(MOST_REGIONS + 1)
    ]
    cluster, last = Cluster(*teams), f"p{MOST_REGIONS:02}"
    labelled = [{"metadata": {"name": name, "labels": {f"team-{MOST_REGIONS}": "yes"}}} for name in ("ours", "kube-system")]
    cluster.store.replaced(NAMESPACES, [reducer_for(NAMESPACES)(one) for one in labelled])
    cluster.store.publish()
    await cluster.gather()
    (left_open,) = cluster.status(last)["failsOpen"]
    assert left_open["namespace"] == "ours"
    assert {"pods", "jobs.batch", "jobs.batch.volcano.sh"} < set(left_open["kinds"])
    assert cluster.condition(name=last)["message"].endswith(
        "Webhooks fail open in 1 namespace in which it refuses objects, because the policies need too many label selectors."
    )
    assert all("failsOpen" not in cluster.status(name) for name in cluster.objects if name != last)
    for name in list(cluster.objects)[:3]:
        cluster.apply(gpu_policy(name, generation=2, mode="Enforce", failurePolicy="Ignore"))
    await cluster.gather()
    assert "failsOpen" not in cluster.status(last)


@pytest.mark.asyncio
async def test_a_bad_policy_is_stalled_and_the_last_good_generation_stays_in_force() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    await cluster.gather()
    cluster.time = "2026-01-02T00:00:00Z"
    cluster.apply(gpu_policy(generation=2, mode="Loud"))
    await cluster.gather()
    ready, stalled = cluster.condition(), cluster.condition("Stalled")
    assert (ready["status"], stalled["status"], ready["reason"], stalled["reason"]) == (
        "False",
        "True",
        "InvalidSpec",
        "InvalidSpec",
    )
    assert ready["message"].startswith("spec.mode: ")
    assert ready["message"].endswith(". Generation 1 stays in force.")
    assert (ready["lastTransitionTime"], ready["observedGeneration"]) == (cluster.time, 2)
    assert (cluster.status()["observedGeneration"], cluster.status()["generationInForce"]) == (2, 1)
    assert cluster.reason_and_message == [("p", "Warning", "InvalidSpec", ready["message"])]

    cluster.time = "2026-01-03T00:00:00Z"
    cluster.apply(gpu_policy(generation=3, mode="Louder"))
    await cluster.gather()
    assert cluster.condition()["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert [one[1] for one in cluster.reason_and_message] == ["Warning", "Warning"]

    cluster.apply(gpu_policy(generation=4, mode="Mutate"))
    await cluster.gather()
    assert [one["type"] for one in cluster.status()["conditions"]] == ["Ready"]
    assert (cluster.condition()["status"], cluster.status()["generationInForce"]) == ("True", 4)
    assert cluster.reason_and_message[-1][1:3] == ("Normal", "InForce")


@pytest.mark.asyncio
async def test_a_controller_that_takes_over_says_nothing_twice() -> None:
    cluster = Cluster(gpu_policy(generation=2, mode="Loud"))
    await cluster.gather()
    assert (len(cluster.reason_and_message), len(cluster.patches)) == (1, 1)
    audit = {"time": "2026-01-01T00:00:00Z", "workloads": 10, "wouldChange": 3, "wouldRefuse": 2, "exempt": 1}
    cluster.writer.audited({"p": audit})
    await cluster.gather()
    assert cluster.status()["lastAudit"] == audit
    cluster.start()
    await cluster.gather()
    assert (len(cluster.reason_and_message), len(cluster.patches)) == (1, 2)
    assert cluster.status()["lastAudit"] == audit
    cluster.writer.audited({})
    await cluster.gather()
    assert "lastAudit" not in cluster.status()


@pytest.mark.asyncio
async def test_nothing_is_written_twice_while_the_watch_lags() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    for _ in range(3):
        assert await cluster.writer.write()
        cluster.writer._version = -1
    assert len(cluster.patches) == 1


@pytest.mark.parametrize(
    "error", [ConnectionLostError("gone"), ApiError(500, "InternalError", "m"), ApiError(403, "Forbidden", "m")]
)
@pytest.mark.asyncio
async def test_what_was_not_taken_is_written_again(error: Exception) -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    cluster.error = error
    assert not await cluster.writer.write()
    cluster.error = None
    assert await cluster.writer.write()
    assert len(cluster.patches) == 1


@pytest.mark.parametrize("error", [ApiError(409, "Conflict", "m"), ApiError(404, "NotFound", "m")])
@pytest.mark.asyncio
async def test_a_policy_that_changed_or_went_meanwhile_keeps_no_other_waiting(error: ApiError) -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    cluster.error = error
    assert await cluster.writer.write(), "the apiserver is well, and is not to be left alone for a while"
    cluster.error = None
    assert await cluster.writer.write()
    assert not cluster.patches, "as long as the watch shows nothing newer it would be refused again"
    cluster.relist()
    assert await cluster.writer.write()
    assert len(cluster.patches) == 1


@pytest.mark.asyncio
async def test_nothing_is_kept_of_policies_that_are_gone() -> None:
    cluster = Cluster(*(gpu_policy(f"p-{at}", **GOOD) for at in range(3)))
    await cluster.gather()
    cluster.objects = {"q": gpu_policy("q", **GOOD)}
    cluster.relist()
    await cluster.gather()
    assert cluster.writer._written.keys() == {"q"}


@pytest.mark.asyncio
async def test_what_others_write_into_the_status_stays_and_what_they_overwrite_is_put_right() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    await cluster.gather()
    other = {**cluster.condition(), "type": "example.com/Seen"}
    wrong = {**cluster.condition(), "status": "Unknown"}
    cluster.objects["p"]["status"] = {**cluster.status(), "conditions": [other, wrong], "rules": "7 Enforce"}
    cluster.relist()
    await cluster.gather()
    assert cluster.condition("example.com/Seen") == other
    assert (cluster.condition()["status"], cluster.status()["rules"]) == ("True", COUNTS)


@pytest.mark.asyncio
async def test_a_new_namespace_is_counted() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    await cluster.gather()
    cluster.store.changed(NAMESPACES, "ADDED", reducer_for(NAMESPACES)({"metadata": {"name": "new"}}))
    cluster.store.publish()
    await cluster.gather()
    assert cluster.status()["matchedNamespaces"] == 3


@pytest.mark.asyncio
async def test_nothing_is_said_before_the_policies_are_known() -> None:
    cluster = Cluster()
    cluster.store = SnapshotStore(cluster.state, Log(io.StringIO()), [NAMESPACES, POLICIES])
    cluster.start()
    assert await cluster.writer.write()
    assert cluster.patches == []


@pytest.mark.asyncio
async def test_a_policy_made_anew_under_its_name_does_not_inherit_what_was_in_force() -> None:
    cluster = Cluster(gpu_policy(**GOOD))
    cluster.objects["p"] = gpu_policy(uid="other", mode="Loud")
    cluster.relist()
    await cluster.gather()
    assert "generationInForce" not in cluster.status()
    assert cluster.condition()["message"].endswith("Nothing of it is in force.")


@pytest.mark.asyncio
async def test_what_starts_while_the_newest_is_bad_puts_in_force_what_parses() -> None:
    bad = {"mode": "Enforce", "rules": {"numa": {"newField": 1}, "new-rule": {}, "gang": {"mode": "Mutate"}}}
    cluster = Cluster(gpu_policy(generation=5, **bad))
    await cluster.gather()
    assert cluster.condition()["message"].endswith("Generation 5 is in force without new-rule, numa.")
    modes = [rule.default_max_mode for rule in RULES if rule.id not in {"numa", "gang"}]
    counts = f"{modes.count(Mode.ENFORCE)} Enforce, {modes.count(Mode.MUTATE) + 1} Mutate, 1 Disabled"
    assert (cluster.status()["generationInForce"], cluster.status()["rules"]) == (5, counts)
    bound = {one.rule.id: one.mode.value for one in cluster.state.in_force.policies.bind({}, {})}
    assert "numa" not in bound
    assert (bound["gang"], bound["queue"]) == ("Mutate", "Enforce")


@pytest.mark.parametrize("spec", [{"mode": "Loud", "rules": {"numa": {"x": 1}}}, {"match": {"selector": {}}, "mode": "Enforce"}])
@pytest.mark.asyncio
async def test_whom_a_policy_is_for_and_how_strictly_is_never_guessed(spec: JsonObject) -> None:
    cluster = Cluster(gpu_policy(generation=5, **spec))
    assert [one.name for one in cluster.state.in_force.policies.policies] == ["default"]
    await cluster.gather()
    assert "generationInForce" not in cluster.status()
