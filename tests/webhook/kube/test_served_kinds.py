"""Which kinds the cluster serves, from the list of all API groups, or only its groups from an older apiserver."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.discovery import read_served_kinds


class _Client:
    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str]] = []

    async def get(self, path: str, *, accept: str) -> dict[str, Any]:
        self.calls.append((path, accept))
        return self.answer


def _version(*kinds: str, freshness: str = "Current") -> dict[str, Any]:
    resources = [{"resource": kind.lower(), "responseKind": {"group": "", "version": "", "kind": kind}} for kind in kinds]
    return {"version": "v1", "resources": resources, "freshness": freshness}


def _owner(api_version: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind}


@pytest.mark.asyncio
async def test_the_kinds_of_all_versions_of_a_group_are_read_at_once() -> None:
    groups = [
        {"metadata": {"name": "ray.io"}, "versions": [_version("RayJob"), _version("RayCluster")]},
        {"metadata": {"name": "metrics.io"}, "versions": [_version(freshness="Stale")]},
    ]
    client = _Client({"kind": "APIGroupDiscoveryList", "items": groups})
    served = await read_served_kinds(cast("ApiClient", client))
    assert served.may_own(_owner("ray.io/v1alpha1", "RayCluster"))
    assert not served.may_own(_owner("ray.io/v1", "Ghost"))
    assert not served.may_own(_owner("nowhere.io/v1", "Ghost"))
    assert served.may_own(_owner("metrics.io/v1", "NobodyKnows"))
    ((path, accept),) = client.calls
    assert path == "/apis"
    assert "as=APIGroupDiscoveryList" in accept
    assert accept.endswith(",application/json")


@pytest.mark.asyncio
async def test_an_older_apiserver_lists_groups_whose_kinds_are_unknown() -> None:
    client = _Client({"kind": "APIGroupList", "groups": [{"name": "ray.io"}]})
    served = await read_served_kinds(cast("ApiClient", client))
    assert served.may_own(_owner("ray.io/v1", "Any"))
    assert not served.may_own(_owner("nowhere.io/v1", "Ghost"))
