"""The real server over TLS: what a forged review cannot do without a client certificate, and who may ask with one."""

from __future__ import annotations

import http.client
import ssl
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from gpugate.certs.issue import issue_ca
from gpugate.webhook.admission.callers import names_in
from tests.certs.client_certificates import issue_client
from tests.shared.fake_apiserver import FakeApiserver
from tests.shared.reviews import admission, counted, overcommitted_pod, pod, well_formed
from tests.shared.running import PATIENCE, Server, run, serving

POLICY = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "default"}}
COREDNS = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "coredns", "uid": str(uuid.uuid4()), "controller": True}


def with_mode(directory: Path, mode: str) -> str:
    file = directory / f"{mode}.json"
    file.write_bytes(orjson.dumps({**POLICY, "spec": {"profile": "recommended", "mode": mode}}))
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


def test_the_port_of_reviews_tells_neither_metrics_nor_details_of_readiness(tmp_path: Path) -> None:
    with serving(tmp_path, "--policy", with_mode(tmp_path, "Enforce")) as server:
        found = {}
        for path in ("/healthz", "/readyz", "/readyz?verbose", "/metrics"):
            connection = server.connection()
            connection.request("GET", path)
            answer = connection.getresponse()
            found[path] = (answer.status, answer.read())
            connection.close()
        assert found["/healthz"] == found["/readyz"] == found["/readyz?verbose"] == (200, b"ok\n")
        assert found["/metrics"][0] == 404
        assert "policy default: generation 0" in server.ask("GET", "/readyz?verbose").text
        assert "gpugate_reviews" in server.ask("GET", "/metrics").text


def test_the_port_of_metrics_takes_no_reviews(tmp_path: Path) -> None:
    with serving(tmp_path, "--policy", with_mode(tmp_path, "Enforce")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=PATIENCE)
        connection.request("POST", "/validate", orjson.dumps(admission(pod())))
        assert connection.getresponse().status == 404
        connection.close()


def test_without_an_address_for_metrics_there_is_one_port(tmp_path: Path) -> None:
    with serving(tmp_path, "--policy", with_mode(tmp_path, "Enforce")) as first:
        done = run("serve", "--listen", "127.0.0.1:0", "--self-signed", str(tmp_path), "--metrics-listen", "here")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            "gpugate: --metrics-listen here: write HOST:PORT, for example 127.0.0.1:8443 or [::]:8443",
        )
        taken = f"127.0.0.1:{first.metrics_port}"
        done = run("serve", "--listen", "127.0.0.1:0", "--self-signed", str(tmp_path), "--metrics-listen", taken)
        assert done.returncode == 2
        assert f"--metrics-listen {taken}: cannot listen there" in done.stderr


def test_a_forged_review_learns_no_name_of_a_node(tmp_path: Path) -> None:
    machine = {
        "metadata": {"name": "secret-node-7", "uid": "n"},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": "64Gi", "cpu": "96"}},
    }
    with FakeApiserver(tmp_path, {"nodes": [machine]}).running() as apiserver:
        options = ("--kubeconfig", str(apiserver.kubeconfig), "--policy", with_mode(tmp_path, "Enforce"))
        with serving(tmp_path, *options) as server:
            server.logged(message="watch", kind="Node", phase="synced")
            large = pod("large", gpus=8, memory="512Gi", request="512Gi")
            answers = [server.post(endpoint, admission(large)).text for endpoint in ("/mutate", "/validate")]
    assert "(name withheld) (1 node): memory 512Gi (main) > 64Gi allocatable" in answers[1]
    assert not any("secret-node-7" in answer for answer in answers)


def test_forged_reviews_hold_no_more_than_a_tenth_of_a_quota(tmp_path: Path) -> None:
    quota = {"metadata": {"name": "hard", "namespace": "team-a"}, "spec": {"hard": {"requests.nvidia.com/gpu": "40"}}}
    quota["status"] = quota["spec"]
    with FakeApiserver(tmp_path, {"resourcequotas": [quota]}).running() as apiserver:
        options = ("--kubeconfig", str(apiserver.kubeconfig), "--policy", with_mode(tmp_path, "Warn"))
        with serving(tmp_path, *options) as server:
            awaited = {"ResourceQuota", "LimitRange"}
            while awaited:
                awaited.discard(str(server.logged(message="watch", phase="synced")["kind"]))
            for number in range(50):
                small = pod(f"forged-{number}", gpus=1, memory="8Gi", request="8Gi", uid=str(uuid.uuid4()))
                assert server.post("/validate?timeout=30s", admission(small)).status == 200
            warnings = {
                gpus: well_formed(server.post("/validate", admission(many(gpus), dryRun=True)).body).get("warnings", [])
                for gpus in (36, 37)
            }
    told = {gpus: [one for one in found if "does not fit now" in one] for gpus, found in warnings.items()}
    assert told[36] == []
    assert "37 of requests.nvidia.com/gpu > 36 left of 40 (0 used, 4 in flight)" in told[37][0]


def many(gpus: int) -> dict[str, Any]:
    made = pod("job", gpus=1, memory="8Gi", request="8Gi")
    template = {"spec": {**made["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": gpus, "completions": gpus, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "team-a"}, "spec": spec}


def certificates(directory: Path, *names: str) -> dict[str, Path]:
    """A certificate for each name, of a CA whose own certificate is in clients.crt."""
    now = datetime.now(UTC)
    ca = issue_ca(now)
    (directory / "clients.crt").write_bytes(ca.certificate_pem)
    files = {}
    for name in names:
        pair = issue_client(ca, name, now)
        files[name] = directory / f"{name}.pem"
        files[name].write_bytes(pair.certificate_pem + pair.key_pem)
    return files


def trusted(server: Server, file: Path) -> ssl.SSLContext:
    context = server.context()
    context.load_cert_chain(file)
    return context


def test_of_the_certificates_of_a_ca_only_those_with_a_configured_name_may_ask(tmp_path: Path) -> None:
    files = certificates(tmp_path, "kube-apiserver", "somebody", "second")
    names = ("--client-name", "kube-apiserver", "--client-name", "second")
    options = ("--policy", with_mode(tmp_path, "Enforce"), "--client-ca", str(tmp_path / "clients.crt"), *names)
    body = orjson.dumps(admission(pod()))
    with serving(tmp_path, *options) as server:
        for name, wanted in (("kube-apiserver", 200), ("second", 200), ("somebody", 403)):
            for path in ("/mutate", "/validate"):
                answer = server.ask("POST", path, body, context=trusted(server, files[name]))
                assert answer.status == wanted, (name, answer.text)
        assert "none of the configured names" in answer.text
        assert "kube-apiserver" not in answer.text
        assert server.ask("POST", "/validate", body).status == 401
        assert server.ask("GET", "/readyz").status == 200
        assert counted(server.ask("GET", "/metrics").text, 'gpugate_bad_requests_total{reason="client-certificate"}') == 3


def test_with_a_client_certificate_refusals_are_told_and_names_are_named(tmp_path: Path) -> None:
    files = certificates(tmp_path, "kube-apiserver")
    machine = {
        "metadata": {"name": "node-7", "uid": "n"},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": "64Gi", "cpu": "96"}},
    }
    with FakeApiserver(tmp_path, {"nodes": [machine]}).running() as apiserver:
        options = ("--kubeconfig", str(apiserver.kubeconfig), "--client-ca", str(tmp_path / "clients.crt"))
        with serving(tmp_path, *options, "--policy", with_mode(tmp_path, "Enforce")) as server:
            server.logged(message="watch", kind="Node", phase="synced")
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
            large = pod("large", gpus=8, memory="512Gi", request="512Gi", ownerReferences=[owner])
            body = orjson.dumps(admission(large))
            answer = server.ask("POST", "/validate", body, context=trusted(server, files["kube-apiserver"]))
            assert "node-7 (1 node): memory 512Gi" in answer.text
            _, path, event = apiserver.wait_for_write()
            assert path == "/apis/events.k8s.io/v1/namespaces/team-a/events"
            assert (event["reason"], event["regarding"]["name"]) == ("Refused", "train")


def test_a_name_without_a_ca_is_an_error(tmp_path: Path) -> None:
    done = run("serve", "--listen", "127.0.0.1:0", "--self-signed", str(tmp_path), "--client-name", "kube-apiserver")
    assert (done.returncode, done.stderr) == (
        2,
        "gpugate: --client-name needs --client-ca FILE, the CA of the client certificates\n",
    )


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        ({}, set()),
        ({"subject": ((("organizationName", "x"),), (("commonName", "a"),))}, {"a"}),
        ({"subject": ((("commonName", "a"), ("commonName", "b")),)}, {"a", "b"}),
        (
            {"subjectAltName": (("DNS", "c"), ("URI", "spiffe://d/e"), ("email", "f@g"), ("IP Address", "10.0.0.1"))},
            {"c", "spiffe://d/e"},
        ),
    ],
)
def test_the_names_of_a_certificate_are_its_common_names_dns_names_and_uris(certificate: dict[str, Any], names: set[str]) -> None:
    assert names_in(certificate) == names
