"""The real server over TLS: what a forged review cannot do without a client certificate, and who may ask with one."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.shared.fake_apiserver import FakeApiserver
from tests.shared.reviews import admission, counted, overcommitted_pod, pod, well_formed
from tests.shared.running import Server, serving

POLICY = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "default"}}
COREDNS = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "coredns", "uid": str(uuid.uuid4()), "controller": True}


def with_mode(directory: Path, mode: str) -> str:
    file = directory / f"{mode}.json"
    file.write_bytes(orjson.dumps({**POLICY, "spec": {"mode": mode}}))
    return str(file)


def unconfirmed(server: Server) -> float:
    return counted(server.ask("GET", "/metrics").text, 'gpugate_events_total{outcome="unconfirmed"}')


def forged(uid: str = "", **metadata: Any) -> dict[str, Any]:
    return overcommitted_pod(
        "coredns-x", uid=uid or str(uuid.uuid4()), namespace="kube-system", ownerReferences=[COREDNS], **metadata
    )


def ask(server: Server, obj: dict[str, Any], namespace: str = "kube-system", **request: Any) -> dict[str, Any]:
    return well_formed(server.post("/validate?timeout=5s", admission(obj, namespace=namespace, **request)).body)


@pytest.mark.parametrize("mode", ["Enforce", "DryRun"])
def test_a_forged_review_makes_the_server_write_nothing(tmp_path: Path, mode: str) -> None:
    known = pod("known", uid=str(uuid.uuid4()), namespace="kube-system", ownerReferences=[COREDNS])
    with FakeApiserver(tmp_path, {"pods": [known]}).running() as apiserver:
        options = ("--kubeconfig", str(apiserver.kubeconfig), "--policy", with_mode(tmp_path, mode))
        with serving(tmp_path, *options) as server:
            server.logged(message="watch", kind="Pod", phase="synced")
            # An object made up, a pod that exists and whose uid is known, and an update of it.
            assert ask(server, forged())["allowed"] == (mode == "DryRun")
            ask(server, forged(uid=known["metadata"]["uid"]))
            ask(server, forged(uid=known["metadata"]["uid"]), operation="UPDATE", oldObject=known)
            apiserver.show("pods", "MODIFIED", known)
            # Events leave in order: one that is confirmed follows, or the end of the server.
            if mode == "DryRun":
                honest = overcommitted_pod("honest", uid=str(uuid.uuid4()))
                ask(server, honest, "team-a")
                apiserver.show("pods", "ADDED", honest)
                method, path, event = apiserver.wait_for_write()
                assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/team-a/events")
                assert event["regarding"]["uid"] == honest["metadata"]["uid"]
            else:
                assert unconfirmed(server) == 3
            server.terminate()
            assert server.wait() == 0
        assert len(apiserver.writes) == (1 if mode == "DryRun" else 0)
