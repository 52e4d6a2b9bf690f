"""Who may make gpugate write at a real apiserver: with the apiserver's client certificate, and without one."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import WEBHOOK_CALLER, wait_until
from tests.e2e.gate import Gate, enforcing
from tests.e2e.workloads import container, deployment, gpus, pod
from tests.shared.reviews import admission, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

_UNCONFIRMED = 'gpugate_events_total{outcome="unconfirmed"}'


@pytest.fixture(scope="module")
def door(control_plane: ControlPlane) -> Iterator[Gate]:
    """gpugate as most clusters run it, without client certificates."""
    with enforcing(control_plane, Gate(control_plane, "gpugate-open"), "callers-h100-1") as found:
        yield found


@pytest.fixture
def closed(control_plane: ControlPlane) -> Iterator[Gate]:
    """gpugate that takes reviews only from the apiserver."""
    closed = Gate(control_plane, "gpugate-closed", *Gate.authenticating(control_plane))
    with enforcing(control_plane, closed, "callers-h100-2") as found:
        yield found


def overcommitted() -> dict[str, Any]:
    """A container that host-memory refuses."""
    return container(gpus(1, "64Gi", request="8Gi"))


def events(cluster: ControlPlane, namespace: str, controller: str) -> list[dict[str, Any]]:
    """The Events in ``namespace`` that ``controller`` wrote, in whichever field it says so."""
    found: list[dict[str, Any]] = cluster.kubectl_json("get", "events", "-n", namespace)["items"]
    return [one for one in found if controller in {one.get("reportingComponent"), one.get("source", {}).get("component")}]


def idle(cluster: ControlPlane, door: Gate, namespace: str) -> str:
    """Create a Deployment without pods whose pods the enforced policy refuses; return the uid of its ReplicaSet."""
    door.set_policy({"mode": "Disabled"})
    made = deployment("serve", namespace, overcommitted(), replicas=0)
    assert cluster.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", made).status == 201

    def uid() -> str:
        items = cluster.kubectl_json("get", "replicasets", "-n", namespace)["items"]
        return str(items[0]["metadata"]["uid"]) if items else ""

    return str(wait_until(uid, 20, "the ReplicaSet"))


def test_a_refusal_of_a_replicasets_pods_is_told_by_its_controller_and_not_on_the_word_of_a_caller(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    uid = idle(control_plane, door, namespace)
    door.set_policy({"mode": "Enforce"})
    before = counted(door.get("/metrics"), _UNCONFIRMED)
    control_plane.kubectl("scale", "deployment", "serve", "--replicas=1", "-n", namespace)

    def told() -> list[str]:
        found = events(control_plane, namespace, "replicaset-controller")
        return [one["message"] for one in found if one["involvedObject"]["uid"] == uid and "gpugate refuses" in one["message"]]

    message = wait_until(told, 30, "the Event of the ReplicaSet's controller")[0]
    assert "host-memory: spec.containers[0].resources.limits.memory: limit 64Gi / request 8Gi = 8" in message
    wait_until(lambda: counted(door.get("/metrics"), _UNCONFIRMED) > before, 10, "the refusal to be counted")
    assert events(control_plane, namespace, "gpugate.io/webhook") == []


def test_what_dryrun_would_refuse_is_told_to_the_replicaset_once_the_watch_shows_its_pod(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    uid = idle(control_plane, door, namespace)
    door.set_policy({"mode": "DryRun"})
    try:
        control_plane.kubectl("scale", "deployment", "serve", "--replicas=1", "-n", namespace)
        found = wait_until(lambda: events(control_plane, namespace, "gpugate.io/webhook"), 30, "the Event")
    finally:
        door.set_policy({"mode": "Enforce"})
    (event,) = found
    assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("WouldRefuse", "Normal", uid)
    assert event["message"].startswith("dry run: gpugate would refuse its Pods: host-memory: ")


def test_a_forged_review_about_coredns_writes_nothing_even_with_its_true_uid(
    control_plane: ControlPlane, door: Gate, namespace: str
) -> None:
    made = deployment("coredns", namespace, container({}), replicas=0)
    stored = control_plane.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", made)
    assert stored.status == 201
    uid = stored.body["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "coredns", "uid": uid, "controller": True}
    forged = pod("coredns-x", namespace, overcommitted())
    forged["metadata"] |= {"uid": uid, "ownerReferences": [owner]}
    milder = pod("coredns-x", namespace, container(gpus(1, "64Gi")))
    before = counted(door.get("/metrics"), _UNCONFIRMED)
    for mode in ("Enforce", "DryRun"):
        door.set_policy({"mode": mode})
        assert post(door, "/validate", admission(forged, namespace=namespace)) == 200
        assert post(door, "/validate", admission(forged, namespace=namespace, operation="UPDATE", oldObject=milder)) == 200
    # An Event that is confirmed leaves after what would have been sent before.
    honest = pod("honest", namespace, overcommitted())
    assert control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", honest).status == 201
    door.set_policy({"mode": "Enforce"})
    found = wait_until(lambda: events(control_plane, namespace, "gpugate.io/webhook"), 30, "the Event of the honest pod")
    assert [one["involvedObject"]["name"] for one in found] == ["honest"]
    assert counted(door.get("/metrics"), _UNCONFIRMED) >= before + 3


def post(door: Gate, path: str, review: dict[str, Any], context: ssl.SSLContext | None = None) -> int:
    """The HTTP status of a review that did not come from the apiserver."""
    request = urllib.request.Request(f"{door.url}{path}", orjson.dumps(review), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, context=context or door.context(), timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_apiserver_shows_its_certificate_and_everybody_else_is_turned_away(
    control_plane: ControlPlane, closed: Gate, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    refused = control_plane.request("POST", path, pod("greedy", namespace, overcommitted()))
    assert refused.status == 403
    assert "gpugate refuses Pod" in refused.body["message"]
    assert control_plane.request("POST", path, pod("good", namespace, container(gpus(1, "32Gi")))).status == 201
    review = admission(pod("forged", namespace, overcommitted()), namespace=namespace)
    assert post(closed, "/validate", review) == 401
    for user, wanted in (("somebody", 403), (WEBHOOK_CALLER, 200)):
        files = control_plane.authority.client(f"callers-{user}", user)
        context = closed.context()
        context.load_cert_chain(files.cert, files.key)
        assert post(closed, "/validate", review, context) == wanted
    found = wait_until(lambda: events(control_plane, namespace, "gpugate.io/webhook"), 20, "the Event about the refusal")
    assert {one["reason"] for one in found} == {"Refused"}
