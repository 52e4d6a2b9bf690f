"""The namespaces of the evidence, with their ResourceQuotas and LimitRanges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.evidence.world import GIB, GPU, text_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN, QUEUES, LIMITS, BOUNDS = "ev-plain", "ev-queues", "ev-limits", "ev-bounds"
#: A PriorityClass that a quota is about.
URGENT = "evidence-urgent"


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota.

    Attributes:
        hard: by the names that quotas use.
        scope: the pods that it is about: ``Terminating``, ``NotTerminating``, ``Urgent`` (by priority class), or all.
    """

    name: str
    hard: Mapping[str, int]
    scope: str = ""

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The object."""
        hard = {name: text_of(name.rpartition(".")[2] if "/" not in name else name, amount) for name, amount in self.hard.items()}
        spec: dict[str, Any] = {"hard": hard}
        if self.scope == "Urgent":
            expression = {"scopeName": "PriorityClass", "operator": "In", "values": [URGENT]}
            spec["scopeSelector"] = {"matchExpressions": [expression]}
        elif self.scope:
            spec["scopes"] = [self.scope]
        return _object("ResourceQuota", self.name, namespace, spec)


@dataclass(frozen=True)
class Limits:
    """What a LimitRange says of memory and CPU: bounds of a container, of a pod, and what a container is given by default."""

    default: Mapping[str, int]
    container_max: Mapping[str, int] = field(default_factory=dict)
    pod_max: Mapping[str, int] = field(default_factory=dict)
    container_min: Mapping[str, int] = field(default_factory=dict)
    pod_min: Mapping[str, int] = field(default_factory=dict)
    container_ratio: Mapping[str, float] = field(default_factory=dict)
    pod_ratio: Mapping[str, float] = field(default_factory=dict)

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The object."""
        default = texts_of(self.default)
        container = _bounds(self.container_max, self.container_min, self.container_ratio)
        pod = _bounds(self.pod_max, self.pod_min, self.pod_ratio)
        items = [{"type": "Container", **container, "default": default, "defaultRequest": default}]
        items += [{"type": "Pod", **pod}] if pod else []
        return _object("LimitRange", "team", namespace, {"limits": items})


@dataclass(frozen=True)
class Home:
    """A namespace."""

    name: str
    quotas: tuple[Quota, ...] = ()
    limits: Limits | None = None

    @property
    def role(self) -> str:
        """What it is called, without its number."""
        return self.name[3:].rstrip("-0123456789")

    def manifests(self) -> list[dict[str, Any]]:
        """Its objects."""
        found: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}]
        found += [quota.manifest(self.name) for quota in self.quotas]
        return found + ([self.limits.manifest(self.name)] if self.limits else [])


def _object(kind: str, name: str, namespace: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}


def _bounds(most: Mapping[str, int], least: Mapping[str, int], ratio: Mapping[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {"max": texts_of(most), "min": texts_of(least)}
    found["maxLimitRequestRatio"] = {resource: str(one) for resource, one in ratio.items()}
    return {key: one for key, one in found.items() if one}


_TEAM = {f"requests.{GPU}": 16, "requests.memory": 1024 * GIB, "requests.cpu": 96_000}
_DEFAULT = {"memory": 32 * GIB, "cpu": 4_000}
_HOMES = [
    Home(PLAIN),
    Home(QUEUES),
    Home(
        LIMITS,
        limits=Limits(_DEFAULT, {"memory": 256 * GIB, "cpu": 32_000}, {"memory": 384 * GIB, "cpu": 48_000}),
    ),
    Home(
        BOUNDS,
        limits=Limits(
            _DEFAULT,
            container_min={"memory": 2 * GIB, "cpu": 500},
            pod_min={"memory": 8 * GIB, "cpu": 2_000},
            container_ratio={"memory": 1.75, "cpu": 1.75},
            pod_ratio={"memory": 1.5, "cpu": 1.5},
        ),
    ),
    *(Home(f"ev-quota-{number}", (Quota("team", _TEAM),)) for number in (1, 2, 3)),
    *(
        Home(f"ev-counted-{number}", (Quota("team", {"limits.memory": 768 * GIB, "limits.cpu": 64_000, "pods": 4}),))
        for number in (1, 2, 3)
    ),
    *(
        Home(
            f"ev-scoped-{number}",
            (
                Quota("long", {f"requests.{GPU}": 8}, "NotTerminating"),
                Quota("short", {f"requests.{GPU}": 2}, "Terminating"),
                Quota("urgent", {f"requests.{GPU}": 4, "pods": 3}, "Urgent"),
            ),
        )
        for number in (1, 2, 3)
    ),
    *(
        Home(f"ev-filled-{number}", (Quota("team", {"requests.memory": 256 * GIB, "limits.cpu": 32_000}),), Limits(_DEFAULT))
        for number in (1, 2)
    ),
]
HOMES: Mapping[str, Home] = {home.name: home for home in _HOMES}


def names(*roles: str) -> list[str]:
    """The namespaces of these roles."""
    return [home.name for home in _HOMES if home.role in roles]
