"""One container under review, of any role, and what it asks for."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping, mappings, string, wrong_type
from gpugate.policies.kube.quantity import QuantityError, exact, whole
from gpugate.policies.workloads.resources import NONE_STATED, ContainerResources, Fault, read_resources
from gpugate.policies.workloads.shm import SharedMemory

REGULAR: Final = "container"
INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"
#: Until :meth:`PodSet.shared_memory` looks for a mount.
NOT_READ: Final = SharedMemory({}, None, ())
#: The API takes no longer name. What is worked out for longer texts is not kept: nobody's junk fills the memory.
LONGEST_NAME: Final = 63


@lru_cache(maxsize=4096)
def normal_path(written: str) -> str:
    """A mount path as the kernel sees it; the root is ``//``, since a mount there says nothing about what lies below."""
    normal = posixpath.normpath("/" + written.lstrip("/"))
    return "//" if normal == "/" else normal


@lru_cache(maxsize=4096)
def _shows(written: str, directory: str) -> bool:
    """Whether a mount at ``written``, however it is spelled, decides what is at ``directory``."""
    place = normal_path(written)
    return place == directory or (directory.startswith(place) and directory[len(place) :][:1] == "/")


class Container:
    """One container of a pod set, of any role.

    Attributes:
        spec: the container itself.
        path: its path from the root of the workload.
        role: ``REGULAR``, ``INIT``, ``SIDECAR`` (an init container that keeps running) or ``EPHEMERAL``.
        name: its name, empty where it has none yet.
        limits: its resource limits, as written.
        requests: its resource requests, as written.
        stated: what limits and requests come to.
        shared_memory: its mount at /dev/shm, kept by :meth:`PodSet.shared_memory`; ``NOT_READ`` until that looks for one.
    """

    __slots__ = ("limits", "name", "path", "requests", "role", "shared_memory", "spec", "stated")

    def __init__(self, spec: Object, path: Path, role: str) -> None:
        self.spec = spec
        self.path = path
        self.role = role
        name = spec.get("name")
        self.name: str = (name if type(name) is str else string(spec, "name", path)) or ""
        self.reload()

    def reload(self) -> None:
        """Read the resources and the mounts anew, after an edit of them."""
        self.shared_memory: SharedMemory | None = NOT_READ
        resources = self.spec.get("resources")
        if resources is None:
            self.limits: Object = {}
            self.requests: Object = {}
            self.stated = NONE_STATED
            return
        if type(resources) is not dict:
            raise wrong_type((*self.path, "resources"), "a map", resources)
        limits, requests = resources.get("limits"), resources.get("requests")
        self.limits = limits if type(limits) is dict else mapping(resources, "limits", (*self.path, "resources"))
        self.requests = requests if type(requests) is dict else mapping(resources, "requests", (*self.path, "resources"))
        self.stated = read_resources(resources, self.limits, self.requests)

    def raw(self, kind: str, resource: str) -> Any:  # noqa: ANN401 - a quantity as somebody wrote it
        """The quantity of ``resource`` under ``kind`` (``limits`` or ``requests``) as written; None where absent."""
        return (self.limits if kind == "limits" else self.requests).get(resource)

    def place(self, kind: str, resource: str) -> Path:
        """The path of ``resource`` under ``kind``."""
        return (*self.path, "resources", kind, resource)

    @property
    def amounts(self) -> ContainerResources:
        """Memory and CPU, limits and requests.

        Raises:
            MalformedError: one of them is no quantity.
        """
        found = self.stated.amounts
        if type(found) is Fault:
            raise MalformedError(self.place(found.kind, found.resource), found.problem)
        return found

    @property
    def every(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Every limit and every request by resource, as stated: bytes, millicores or counts.

        Raises:
            MalformedError: one of them is no quantity.
        """
        found = self.stated.every
        if type(found) is Fault:
            raise MalformedError(self.place(found.kind, found.resource), found.problem)
        return found

    def memory(self, kind: str) -> int | None:
        """Memory under ``kind`` in bytes; None where it is not stated."""
        return self.amounts.memory_limit if kind == "limits" else self.amounts.memory_request

    def cpu(self, kind: str) -> int | None:
        """CPU under ``kind`` in millicores; None where it is not stated."""
        return self.amounts.cpu_limit if kind == "limits" else self.amounts.cpu_request

    def count(self, kind: str, resource: str) -> int | None:
        """The amount of ``resource`` under ``kind``, a fraction rounded up to a whole number; None where not stated."""
        written = self.raw(kind, resource)
        try:
            return None if written is None else whole(written)
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def is_fraction(self, kind: str, resource: str) -> bool:
        """Whether the stated amount is no whole number."""
        written = self.raw(kind, resource)
        try:
            return written is not None and exact(written).denominator != 1
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def accelerators(self) -> dict[str, int]:
        """Accelerators that the container asks for: resource name to count, none with a count of zero.

        Raises:
            MalformedError: a count is no quantity.
        """
        found = self.stated.accelerators
        if type(found) is Fault:
            raise MalformedError(self.place(found.kind, found.resource), found.problem)
        return found

    def claims(self) -> list[str]:
        """Names of the pod's resource claims that the container uses."""
        resources = self.spec.get("resources")
        if not resources or "claims" not in resources:
            return []
        path = (*self.path, "resources")
        claims = mappings(resources, "claims", path)
        names = (string(claim, "name", (*path, "claims", at)) for at, claim in enumerate(claims))
        return [name for name in names if name]

    def mount_at(self, directory: str) -> Object | None:
        """The mount at ``directory`` however it is spelled, or at a directory above it; None where there is none."""
        for at, mount in enumerate(mappings(self.spec, "volumeMounts", self.path)):
            written = mount.get("mountPath")
            if type(written) is not str:
                written = string(mount, "mountPath", (*self.path, "volumeMounts", at))
            if written is not None and _shows(written, directory):
                return mount
        return None

    def env(self, name: str) -> Object | None:
        """The environment entry called ``name``; None where there is none."""
        for entry in mappings(self.spec, "env", self.path):
            if entry.get("name") == name:
                return entry
        return None
