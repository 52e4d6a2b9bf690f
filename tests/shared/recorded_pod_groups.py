"""An apiserver that keeps PodGroups, and somebody who takes what is told."""

from __future__ import annotations

from typing import Any

import orjson

from gpugate.webhook.kube.errors import ApiError, ConnectionLostError, refusal
from gpugate.webhook.kube.event_series import Reference

Object = dict[str, Any]
PATH = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team-a/podgroups"


class PodGroupApi:
    """PodGroups as an apiserver keeps them."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}
        self.calls: list[tuple[str, str]] = []
        self.broken = 0
        self.is_served = True

    def _call(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        if self.broken:
            self.broken -= 1
            raise ConnectionLostError("lost the apiserver")

    async def get(self, path: str) -> Object:
        self._call("GET", path)
        if path not in self.stored:
            raise refusal(404, {"reason": "NotFound", "message": "not found", "details": {"name": "w"}})
        found: Object = orjson.loads(orjson.dumps(self.stored[path]))
        return found

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> Object:  # noqa: ARG002
        self._call("LIST", path)
        return {"items": []}

    async def served(self, group: str, version: str, plural: str) -> bool:  # noqa: ARG002
        return self.is_served

    async def create(self, path: str, item: Object) -> Object:
        self._call("POST", path)
        place = f"{path}/{item['metadata']['name']}"
        if place in self.stored:
            raise ApiError(409, "AlreadyExists", "already exists")
        self.stored[place] = item | {"metadata": item["metadata"] | {"uid": f"pg-{len(self.calls)}", "resourceVersion": "1"}}
        return self.stored[place]

    async def patch(self, path: str, patch: Object) -> Object:
        self._call("PATCH", path)
        stored = self.stored[path]
        if patch["metadata"].pop("resourceVersion") != stored["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        stored["metadata"] |= patch["metadata"]
        stored["spec"] |= patch.get("spec", {})
        return stored

    async def delete(self, path: str, *, uid: str = "") -> None:
        self._call("DELETE", path)
        assert self.stored[path]["metadata"]["uid"] == uid
        del self.stored[path]

    @property
    def writes(self) -> list[str]:
        return [method for method, _ in self.calls if method not in {"GET", "LIST"}]


class RecordedEvents:
    """Keeps what is told: kind, reason and message."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: str = "Warning") -> None:  # noqa: ARG002
        assert regarding.uid
        self.told.append((kind, reason, message))
