"""One container under review, of any role, and what it asks for."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpugate.policies.accelerators import is_accelerator
from gpugate.policies.fields import MalformedError, Object, Path, mapping, mappings, string, wrong_type
from gpugate.policies.quantity import QuantityError, exact, millicores, whole

REGULAR: Final = "container"
INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"


@lru_cache(maxsize=4096)
def normal_path(written: str) -> str:
    """A mount path as the kernel sees it; the root is ``//``, since a mount there says nothing about what lies below."""
    normal = posixpath.normpath("/" + written.lstrip("/"))
    return "//" if normal == "/" else normal


class Amounts(NamedTuple):
    """Memory in bytes and CPU in millicores that a container states; None where it states none."""

    memory_limit: int | None
    memory_request: int | None
    cpu_limit: int | None
    cpu_request: int | None


class Container:
    """One container of a pod set, of any role.

    Attributes:
        spec: the container itself.
        path: its path from the root of the workload.
        role: ``REGULAR``, ``INIT``, ``SIDECAR`` (an init container that keeps running) or ``EPHEMERAL``.
        name: its name, empty where it has none yet.
        limits: its resource limits, as written.
        requests: its resource requests, as written.
    """

    __slots__ = ("_accelerators", "_amounts", "_extended", "limits", "name", "path", "requests", "role", "spec")

    def __init__(self, spec: Object, path: Path, role: str) -> None:
        self.spec = spec
        self.path = path
        self.role = role
        self.name = string(spec, "name", path) or ""
        self.refresh()

    def refresh(self) -> None:
        """Read the resources anew, after an edit changed which devices the container asks for."""
        self._accelerators: dict[str, int] | None = None
        self._extended: list[str] | None = None
        self.reload()

    def reload(self) -> None:
        """Read limits and requests anew, after an edit of memory or CPU."""
        self._amounts: Amounts | None = None
        resources = self.spec.get("resources")
        if resources is None:
            self.limits: Object = {}
            self.requests: Object = {}
            return
        if type(resources) is not dict:
            raise wrong_type((*self.path, "resources"), "a map", resources)
        limits, requests = resources.get("limits"), resources.get("requests")
        self.limits = limits if type(limits) is dict else mapping(resources, "limits", (*self.path, "resources"))
        self.requests = requests if type(requests) is dict else mapping(resources, "requests", (*self.path, "resources"))

    def raw(self, kind: str, resource: str) -> Any:  # noqa: ANN401 - a quantity as somebody wrote it
        """The quantity of ``resource`` under ``kind`` (``limits`` or ``requests``) as written; None where absent."""
        return (self.limits if kind == "limits" else self.requests).get(resource)

    def place(self, kind: str, resource: str) -> Path:
        """The path of ``resource`` under ``kind``."""
        return (*self.path, "resources", kind, resource)

    @property
    def amounts(self) -> Amounts:
        """Memory and CPU, limits and requests, read once.

        Raises:
            MalformedError: one of them is no quantity.
        """
        found = self._amounts
        if found is None:
            limits, requests = self.limits, self.requests
            found = self._amounts = Amounts(
                # A memory limit of zero is none for the kubelet.
                None if (written := limits.get("memory")) is None else self._read(whole, written, "limits", "memory") or None,
                None if (written := requests.get("memory")) is None else self._read(whole, written, "requests", "memory"),
                None if (written := limits.get("cpu")) is None else self._read(millicores, written, "limits", "cpu"),
                None if (written := requests.get("cpu")) is None else self._read(millicores, written, "requests", "cpu"),
            )
        return found

    def _read(self, unit: Callable[[object], int], written: object, kind: str, resource: str) -> int:
        try:
            return unit(written)
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def memory(self, kind: str) -> int | None:
        """Memory under ``kind`` in bytes; None where it is not stated."""
        return self.amounts.memory_limit if kind == "limits" else self.amounts.memory_request

    def cpu(self, kind: str) -> int | None:
        """CPU under ``kind`` in millicores; None where it is not stated."""
        return self.amounts.cpu_limit if kind == "limits" else self.amounts.cpu_request

    def count(self, kind: str, resource: str) -> int | None:
        """The amount of ``resource`` under ``kind``, a fraction rounded up to a whole number; None where not stated."""
        written = (self.limits if kind == "limits" else self.requests).get(resource)
        return None if written is None else self._read(whole, written, kind, resource)

    def is_fraction(self, kind: str, resource: str) -> bool:
        """Whether the stated amount is no whole number."""
        written = self.raw(kind, resource)
        try:
            return written is not None and exact(written).denominator != 1
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def extended(self) -> list[str]:
        """Names under limits and requests that could be extended resources (with a ``/``), sorted."""
        if self._extended is None:
            names = [name for name in self.limits if "/" in name]
            names += [name for name in self.requests if "/" in name and name not in self.limits]
            self._extended = sorted(names) if len(names) > 1 else names
        return self._extended

    def accelerators(self) -> dict[str, int]:
        """Accelerators that the container asks for: resource name to count, none with a count of zero."""
        if self._accelerators is None:
            found: dict[str, int] = {}
            for name in self.extended():
                if is_accelerator(name):
                    count = max(self.count("limits", name) or 0, self.count("requests", name) or 0)
                    if count > 0:
                        found[name] = count
            self._accelerators = found
        return self._accelerators

    def claims(self) -> list[str]:
        """Names of the pod's resource claims that the container uses."""
        resources = self.spec.get("resources")
        if not resources or "claims" not in resources:
            return []
        path = (*self.path, "resources")
        claims = mappings(resources, "claims", path)
        names = (string(claim, "name", (*path, "claims", at)) for at, claim in enumerate(claims))
        return [name for name in names if name]

    def mounts(self) -> list[Object]:
        """Its volume mounts."""
        return mappings(self.spec, "volumeMounts", self.path)

    def mount_at(self, directory: str) -> Object | None:
        """The mount at ``directory`` however it is spelled, or at a directory above it; None where there is none."""
        for at, mount in enumerate(self.mounts()):
            written = string(mount, "mountPath", (*self.path, "volumeMounts", at))
            if written is None:
                continue
            place = normal_path(written)
            if place == directory or (directory.startswith(place) and directory[len(place) :][:1] == "/"):
                return mount
        return None

    def env(self, name: str) -> Object | None:
        """The environment entry called ``name``; None where there is none."""
        for entry in mappings(self.spec, "env", self.path):
            if entry.get("name") == name:
                return entry
        return None
