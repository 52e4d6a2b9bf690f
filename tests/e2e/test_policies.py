"""GPUPolicies at a real apiserver: what it takes and refuses, what their status says, and when replicas change over."""

from __future__ import annotations

import http.client
import itertools
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson
import pytest
from ruamel.yaml import YAML

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import RULES
from tests.e2e.controller import Controller
from tests.e2e.controlplane import wait_until
from tests.e2e.gate import MANIFESTS, Gate
from tests.e2e.workloads import container, gpus, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

_CASES = Path(__file__).parents[1] / "policies" / "policy" / "gpupolicy_cases.yaml"
CASES: dict[str, Any] = YAML(typ="safe").load(_CASES.read_text(encoding="utf-8"))
PATH = "/apis/gpugate.io/v1alpha1/gpupolicies"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpupolicies.gpugate.io"


def policy(spec: Any, name: str = "probe") -> dict[str, Any]:
    return {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": name}, "spec": spec}


class Answer(NamedTuple):
    """One answer of a replica: when it came, the policies that it names, and the severity of what each rule found."""

    at: float
    policies: str
    allowed: bool
    found: dict[str, str]
    warnings: list[str]


class Replica:
    """A webhook replica that is asked directly, over one connection."""

    def __init__(self, gate: Gate, authority: Path) -> None:
        self.gate = gate
        context = ssl.create_default_context(cafile=str(authority))
        self._connection = http.client.HTTPSConnection("127.0.0.1", gate.port, context=context, timeout=30)

    def ask(self, obj: dict[str, Any]) -> Answer:
        request = {"uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": obj}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "namespace": "default"}}
        self._connection.request("POST", "/validate?timeout=10s", orjson.dumps(body), {"Content-Type": "application/json"})
        response = orjson.loads(self._connection.getresponse().read())["response"]
        notes = response.get("auditAnnotations", {})
        found = dict(key.rpartition(".")[::2] for key in notes if "." in key)
        return Answer(time.monotonic(), notes.get("policies", ""), response["allowed"], found, response.get("warnings", []))


class World(NamedTuple):
    """A cluster with two replicas of the webhook and a controller."""

    cluster: ControlPlane
    replicas: tuple[Gate, Gate]
    controller: Controller

    def ask(self, obj: dict[str, Any], at: int = 0) -> Answer:
        return Replica(self.replicas[at], self.cluster.authority.ca_file).ask(obj)

    def apply(self, spec: Any, name: str = "default") -> int:
        """Apply a policy; gives its generation."""
        self.cluster.apply(policy(spec, name))
        return int(self.get(name)["metadata"]["generation"])

    def get(self, name: str = "default") -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.request("GET", f"{PATH}/{name}").body
        return found

    def ready(self, name: str = "default") -> dict[str, Any]:
        """The Ready condition that is about the newest generation."""

        def looked_at() -> dict[str, Any]:
            found = self.get(name)
            conditions = {one["type"]: one for one in found.get("status", {}).get("conditions", [])}
            newest = found["metadata"]["generation"] == conditions.get("Ready", {}).get("observedGeneration")
            return conditions if newest else {}

        return wait_until(looked_at, 20, f"the status of {name} to be about its newest generation")


@pytest.fixture(scope="module")
def crd(control_plane: ControlPlane) -> ControlPlane:
    """The cluster with the CRD: all expressions in it are within the apiserver's budget of what they may cost."""
    control_plane.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "crd"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/gpupolicies.gpugate.io", "--timeout=30s")
    return control_plane


@pytest.fixture(scope="module")
def world(crd: ControlPlane) -> Iterator[World]:
    first, second = Gate(crd, "policies-a"), Gate(crd, "policies-b")
    controller = Controller(crd, "policies-controller")
    first.install()
    try:
        for one in (first, second):
            one.start()
        controller.start()
        controller.wait_leading()
        yield World(crd, (first, second), controller)
    finally:
        for program in (first, second, controller):
            program.stop()
        crd.kubectl("delete", "gpupolicy", "--all")


def test_the_apiserver_takes_every_good_policy_and_refuses_every_bad_one(crd: ControlPlane) -> None:
    strict = f"{PATH}?dryRun=All&fieldValidation=Strict"
    taken = {name: crd.request("POST", strict, policy(spec)) for name, spec in CASES["good"].items()}
    assert {name: one.body.get("message") for name, one in taken.items() if one.status != 201} == {}
    refused = {name: crd.request("POST", strict, policy(spec)) for name, (spec, _) in CASES["bad"].items()}
    assert {name: one.status for name, one in refused.items() if one.status not in {400, 422}} == {}


def bad_pod() -> dict[str, Any]:
    """A pod that two rules refuse."""
    return pod("x", "default", container({**gpus(1, "64Gi", request="8Gi")}), container({"limits": {"nvidia.com/mig-1g5gb": "1"}}))


class Load:
    """Reviews one after the other at each replica, as fast as they are answered."""

    def __init__(self, world: World) -> None:
        self.answers: list[list[Answer]] = [[] for _ in world.replicas]
        self._done = threading.Event()
        replicas = [Replica(one, world.cluster.authority.ca_file) for one in world.replicas]
        pairs = zip(replicas, self.answers, strict=True)
        self._threads = [threading.Thread(target=self._review, args=pair) for pair in pairs]

    def _review(self, replica: Replica, found: list[Answer]) -> None:
        while not self._done.is_set():
            found.append(replica.ask(bad_pod()))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(30)

    def wait_for(self, generation: int) -> None:
        """Wait until every replica answers by this generation."""
        named = f"default@{generation}"

        def all_do() -> bool:
            return all(found and found[-1].policies == named for found in self.answers)

        wait_until(all_do, 20, f"both replicas to answer by generation {generation}")

    def by(self, generation: int) -> list[list[Answer]]:
        """What each replica answered by this generation."""
        return [[one for one in found if one.policies == f"default@{generation}"] for found in self.answers]


def test_two_replicas_change_over_within_a_second_and_no_answer_mixes_generations(world: World) -> None:
    words = {world.apply({"mode": "DryRun"}): "dryrun-deny"}
    with Load(world) as load:
        for mode, word in (("Enforce", "deny"), ("DryRun", "dryrun-deny")) * 5:
            generation = world.apply({"mode": mode})
            words[generation] = word
            load.wait_for(generation)

    for generation, word in words.items():
        for one in itertools.chain(*load.by(generation)):
            assert {one.found["host-memory"], one.found["accelerator-names"]} == {word}, one
            assert one.allowed == (word != "deny")
    for found in load.answers:
        generations = [int(one.policies.rpartition("@")[2]) for one in found]
        assert generations == sorted(generations)
    firsts = [[found[0].at for found in load.by(generation)] for generation in sorted(words)[1:]]
    apart = max(abs(one - other) for one, other in firsts)
    print(f"{sum(map(len, load.answers))} reviews; replicas at most {apart:.3f} s apart in {len(firsts)} changes")
    assert apart < 1.0


def test_the_status_says_what_a_policy_binds_and_kubectl_shows_it(world: World) -> None:
    world.apply({"mode": "DryRun", "rules": {"numa": {"mode": "Enforce"}}})
    world.apply({"priority": 5, "rules": {"gang": {"mode": "Mutate"}}, "match": _nowhere()}, "nowhere")
    ready = world.ready()["Ready"]
    assert (ready["status"], ready["reason"]) == ("True", "InForce")
    others = sum(rule.default_max_mode is not Mode.DISABLED for rule in RULES) - 1
    assert f"1 Enforce, {others} DryRun" in ready["message"]
    world.cluster.kubectl("wait", "--for=condition=Ready", "gpupolicy/default", "gpupolicy/nowhere", "--timeout=20s")
    assert "selects no namespace" in world.ready("nowhere")["Ready"]["message"]

    namespaces = len(world.cluster.kubectl_json("get", "namespaces")["items"])
    wait_until(lambda: world.get()["status"].get("matchedNamespaces") == namespaces, 20, "every namespace to be counted")
    head, *rows = world.cluster.kubectl("get", "gpupolicies").stdout.splitlines()
    wanted = ["NAME", "MODE", "PRIORITY", "READY", "REASON", "NAMESPACES", "WOULD-CHANGE", "WOULD-REFUSE", "AGE"]
    assert head.split() == wanted
    cells = {row.split()[0]: row for row in rows}
    shown = cells["default"]
    assert [shown[head.index(name) :].split()[0] for name in ("MODE", "READY", "REASON")] == ["DryRun", "True", "InForce"]
    assert shown[head.index("NAMESPACES") :].split()[0] == str(namespaces)
    assert cells["nowhere"][head.index("NAMESPACES") :].split()[0] == "0"
    wide = world.cluster.kubectl("get", "gpol", "-o", "wide").stdout
    assert {"RULES", "IN-FORCE", "MESSAGE"} <= set(wide.splitlines()[0].split())
    world.cluster.kubectl("delete", "gpupolicy", "nowhere")


def _nowhere() -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"nobody": "has-this"}}}


def test_an_exemption_holds_until_its_end(world: World) -> None:
    generation = world.apply({"rules": {"host-memory": {}}, "exemptions": {"rules": ["host-memory"], "longestDays": 30}})
    line = f"policy default: generation {generation}\n"
    wait_until(lambda: line in world.replicas[0].get("/readyz?verbose"), 20, line)
    today = datetime.now(UTC).date()
    for days, allowed, words in (
        (1, True, "exempt from host-memory until"),
        (-1, False, "has ended"),
        (60, False, "30 days ahead"),
    ):
        obj = pod("x", "default", container(gpus(1, "64Gi", request="8Gi")))
        obj["metadata"]["annotations"] = {
            "gpugate.io/exempt": "host-memory",
            "gpugate.io/exempt-reason": "measured",
            "gpugate.io/exempt-until": str(today + timedelta(days=days)),
            "gpugate.io/exempt-owner": "team-a",
        }
        answer = world.ask(obj)
        assert answer.allowed is allowed, (days, answer)
        assert any(words in one for one in answer.warnings), answer


def test_a_bad_policy_is_told_of_everywhere_and_the_last_good_one_stays_in_force(world: World) -> None:
    good = world.apply({"mode": "Enforce"})
    world.ready()
    wait_until(lambda: world.ask(bad_pod()).policies == f"default@{good}", 20, "the good policy to be in force")
    with_older_crd(world, {"mode": "Enforce", "rules": {"numa": {"maxShareRatio": 0.5}}})
    conditions = world.ready()
    assert (conditions["Ready"]["status"], conditions["Stalled"]["status"]) == ("False", "True")
    assert conditions["Stalled"]["reason"] == "InvalidSpec"
    message = f"spec.rules.numa.maxShareRatio: Input should be greater than or equal to 1. Generation {good} stays in force."
    assert conditions["Ready"]["message"] == message
    assert world.get()["status"]["generationInForce"] == good
    for at in range(2):
        answer = world.ask(bad_pod(), at)
        assert (answer.policies, answer.allowed) == (f"default@{good}", False)
        exposed = world.replicas[at].get("/metrics")
        assert f'gpugate_policy_generation{{policy="default"}} {float(good)}' in exposed
        assert 'gpugate_policy_invalid{policy="default"} 1.0' in exposed
    assert world.controller.metric("gpugate_policy_generation", policy="default") == good
    assert world.controller.metric("gpugate_policy_invalid", policy="default") == 1
    wait_until(lambda: events_about(world, "Warning") == {message}, 20, "an Event about the policy")

    # A replica that starts now has never seen a good one: it does without the rule that it cannot read.
    world.replicas[1].stop()
    world.replicas[1].start()
    answer = world.ask(bad_pod(), 1)
    assert (answer.policies, answer.allowed) == (f"default@{good + 1}", False)
    assert "generation 2 is in force without numa" in world.replicas[1].get("/readyz?verbose").replace(str(good + 1), "2")

    mended = {**world.get(), "spec": {"mode": "Enforce"}}
    assert world.cluster.request("PUT", f"{PATH}/default", mended).status == 200
    assert set(world.ready()) == {"Ready"}
    wait_until(lambda: len(events_about(world, "Normal")) == 1, 20, "an Event that all is well again")


def with_older_crd(world: World, spec: Any) -> None:
    """Store a policy that the CRD of today refuses, as one may be left from before."""
    whole = world.cluster.request("GET", CRD).body
    whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert world.cluster.request("PUT", CRD, whole).status == 200
    try:
        # The apiserver takes a moment to go by another schema.
        found = world.get()
        wait_until(
            lambda: (
                world.cluster.request("PUT", f"{PATH}/default", {**world.get(), "spec": spec}).status == 200
                and world.get()["spec"] == spec
            ),
            30,
            "the apiserver to take the bad policy",
        )
        assert world.get()["metadata"]["generation"] == found["metadata"]["generation"] + 1
    finally:
        world.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(MANIFESTS / "crd"))


def events_about(world: World, kind: str) -> set[str]:
    """What the Events of this kind about the default policy say."""
    found = world.cluster.request("GET", "/apis/events.k8s.io/v1/events").body["items"]
    about = [one for one in found if one.get("regarding", {}).get("kind") == "GPUPolicy"]
    return {one["note"] for one in about if one["type"] == kind and one["reportingController"] == "gpugate.io/controller"}
