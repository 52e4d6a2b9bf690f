"""A program of a test's own beside the cluster: how the tests of a webhook are meant to run it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import orjson

from tests.e2e.controlplane import ControlPlane, ManagedProcess, answers_ok, free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

# Labels whatever it is asked about and warns of it.
WEBHOOK = """
import base64, http.server, json, ssl, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({})

    def do_POST(self):
        uid = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]["uid"]
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
        response = {"uid": uid, "allowed": True, "warnings": ["seen"], "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        self.answer({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    def answer(self, content):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

port, cert, key = sys.argv[1:]
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def test_a_webhook_beside_the_cluster_is_called_and_its_patch_is_in_the_audit_log(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    port, files = free_port(), control_plane.authority.serving(f"{namespace}-webhook")
    url = f"https://127.0.0.1:{port}/"
    command = [sys.executable, "-c", WEBHOOK, str(port), str(files.cert), str(files.key)]
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "label.e2e.gpugate.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "clientConfig": {"url": url, "caBundle": control_plane.authority.ca_bundle},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            }
        ],
    }
    with ManagedProcess.start("webhook", command, log=tmp_path / "webhook.log") as webhook:
        webhook.wait_ready(lambda: answers_ok(url, files.ca), 10)
        control_plane.apply(configuration)
        path = f"/api/v1/namespaces/{namespace}/configmaps"

        def labelled() -> str:
            created = control_plane.request("POST", path, {"metadata": {"generateName": "probe-"}})
            if created.body["metadata"].get("labels") != {"seen": "yes"}:
                return ""
            assert created.warnings == ("seen",)
            return str(created.body["metadata"]["name"])

        name = wait_until(labelled, 20, "the apiserver to know the webhook")
        control_plane.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{namespace}")

    events = [orjson.loads(line) for line in control_plane.audit_log.read_bytes().splitlines()]
    mine = [event for event in events if event.get("objectRef", {}).get("namespace") == namespace]
    patches = [value for event in mine for key, value in event.get("annotations", {}).items() if key.startswith("patch.")]
    assert any('"seen"' in patch for patch in patches), f"no patch of {name} among {mine}"
