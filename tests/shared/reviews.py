"""What the tests of the door share: objects, reviews of them, and a door in this process."""

from __future__ import annotations

import base64
import io
from copy import deepcopy
from typing import Any

import jsonpatch
import orjson

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.policy.models import Policy, parse_policy
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.events import EventSink
from gpugate.webhook.runtime.log import Log
from tests.shared.paths import ROOT

EXAMPLES = ROOT / "examples"
POLICY = EXAMPLES / "policy.yaml"
CLUSTER = EXAMPLES / "cluster.yaml"
WORKLOADS = EXAMPLES / "workloads"
#: What Flux with force and kubectl with force take for "delete it and make it anew".
FATAL_WORDS = ("is immutable", "immutable field")

Json = dict[str, Any]


def pod(
    name: str = "train", *, gpus: int | str = 1, memory: str | None = None, request: str | None = None, **metadata: Any
) -> Json:
    """A pod that asks for ``gpus``; refused by host-memory where the limit is far above the request."""
    resources: Json = {"limits": {"nvidia.com/gpu": gpus}}
    if memory is not None:
        resources["limits"]["memory"] = memory
    if request is not None:
        resources["requests"] = {"memory": request}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", **metadata},
        "spec": {"containers": [{"name": "main", "image": "registry.example/train:1", "resources": resources}]},
    }


def overcommitted_pod(name: str = "greedy", **metadata: Any) -> Json:
    return pod(name, memory="48Gi", request="4Gi", **metadata)


def cpu_pod() -> Json:
    made = pod("web")
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    return made


def admission(obj: Json | None, *, operation: str = "CREATE", old: Json | None = None, **request: Any) -> Json:
    """The AdmissionReview that an apiserver sends for ``obj``."""
    stated = obj if obj is not None else old or {}
    metadata = stated.get("metadata")
    group, _, version = str(stated.get("apiVersion", "v1")).rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": stated.get("kind")},
            "resource": {"group": group, "version": version, "resource": f"{stated.get('kind', '')}s".lower()},
            "operation": operation,
            "namespace": "team-a",
            "name": str(metadata.get("name") or "") if isinstance(metadata, dict) else "",
            "userInfo": {"username": "dana@example.com"},
            "dryRun": False,
            "object": obj,
            "oldObject": old,
            **request,
        },
    }


def patch_of(response: Json) -> list[Json]:
    """The JSON Patch of a response; an empty one where it has none."""
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    found = orjson.loads(base64.b64decode(response["patch"], validate=True))
    assert isinstance(found, list)
    return found


def patched(obj: Json, response: Json) -> Json:
    """``obj`` as the response changes it, by the library and not by gpugate."""
    made: Json = jsonpatch.apply_patch(deepcopy(obj), patch_of(response))
    return made


def policy(name: str = "default", *, generation: int = 0, **spec: Any) -> Policy:
    metadata = {"name": name, **({"generation": generation} if generation else {})}
    kind = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy"}
    return parse_policy({**kind, "metadata": metadata, "spec": {"profile": "recommended", "mode": "Enforce", **spec}})


class InProcess:
    """A door in this process, with its log and metrics to look at."""

    def __init__(
        self, policies: list[Policy] | None = None, snapshot: ClusterSnapshot = EMPTY_SNAPSHOT, *, events: EventSink | None = None
    ) -> None:
        self.state = CurrentState(snapshot, [policy()] if policies is None else policies)
        self.metrics = Metrics()
        self._stream = io.StringIO()
        self.log = Log(self._stream)
        self.door = AdmissionHandler(self.state, self.metrics, self.log, denials=DenialReporter(self.metrics, events))

    def ask(self, body: Json | bytes, endpoint: str = "mutate") -> Json:
        """The ``response`` to ``body``, well-formed or the test fails."""
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return well_formed(self.door.answer(endpoint, raw))

    @property
    def lines(self) -> list[Json]:
        self.log.flush()
        # splitlines would also cut at the separators that a text within a line may have.
        return [orjson.loads(line) for line in self._stream.getvalue().split("\n") if line]

    def forget_lines(self) -> None:
        self.log.flush()
        self._stream.seek(0)
        self._stream.truncate()

    def count(self, series: str) -> float:
        return counted(self.metrics.text().decode(), series)


def counted(exposition: str, series: str) -> float:
    """The value of ``series``, written with its labels, in the Prometheus text format; 0 where it is not there."""
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        if name == series:
            return float(value)
    return 0.0


def well_formed(body: bytes) -> Json:
    """The ``response`` of an AdmissionReview, checked for all that the apiserver demands of one."""
    review = orjson.loads(body)
    assert set(review) == {"apiVersion", "kind", "response"}
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = review["response"]
    assert set(response) <= {"uid", "allowed", "patch", "patchType", "warnings", "auditAnnotations", "status"}
    assert isinstance(response["uid"], str)
    assert response["uid"]
    assert isinstance(response["allowed"], bool)
    assert ("patch" in response) == ("patchType" in response)
    patch_of(response)
    assert all(isinstance(one, str) and one for one in response.get("warnings", []))
    assert all(isinstance(key, str) and isinstance(one, str) for key, one in response.get("auditAnnotations", {}).items())
    if not response["allowed"]:
        assert "patch" not in response
        status = response["status"]
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        assert status["message"]
        assert not any(words in status["message"].lower() for words in FATAL_WORDS)
    return response
