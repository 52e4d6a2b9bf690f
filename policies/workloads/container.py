"""One container of a pod, of any role, the resources that it states, and its mount at /dev/shm.

A memory-backed emptyDir is a tmpfs whose pages are charged to the container that writes them and count against that
container's memory limit; it may grow to the smallest of node allocatable, the pod's memory limit and ``sizeLimit``
(kubernetes/website issue 36494, kubernetes/kubernetes issue 125852).
"""

import posixpath
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping, mappings, string, wrong_type
from gpugate.policies.kube.quantity import QuantityError, exact, whole
from gpugate.policies.workloads.resources import NONE_STATED, ContainerResources, Fault, read_resources

REGULAR: Final = "container"
INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"


class SharedMemory(NamedTuple):
    """A mount that decides what /dev/shm is in a container.

    Attributes:
        mount: the volume mount.
        volume: its volume; None if the pod has none of that name.
        place: path of the volume.
    """

    mount: Object
    volume: Object | None
    place: Path

    @property
    def is_memory(self) -> bool:
        """True if the volume is an emptyDir in memory."""
        source = (self.volume or {}).get("emptyDir")
        return type(source) is dict and source.get("medium") == "Memory"

    @property
    def size_limit(self) -> int | None:
        """Its ``sizeLimit`` in bytes; None if it has none.

        Raises:
            MalformedError: the size is no quantity.
        """
        written = mapping(self.volume or {}, "emptyDir", self.place).get("sizeLimit")
        if written is None:
            return None
        try:
            return whole(written)
        except QuantityError as error:
            raise MalformedError((*self.place, "emptyDir", "sizeLimit"), str(error)) from None


#: Value before :meth:`PodSet.shared_memory` looks for a mount.
NOT_READ: Final = SharedMemory({}, None, ())
#: Maximum length of a name in the API. Results for longer texts are not cached, to bound memory.
LONGEST_NAME: Final = 63


@lru_cache(maxsize=4096)
def normal_path(written: str) -> str:
    """Return a mount path as the kernel sees it; the root becomes ``//``, since it decides nothing about the paths below."""
    normal = posixpath.normpath("/" + written.lstrip("/"))
    return "//" if normal == "/" else normal


@lru_cache(maxsize=4096)
def _shows(written: str, directory: str) -> bool:
    """Return whether a mount at ``written``, in any spelling, decides what is at ``directory``."""
    place = normal_path(written)
    return place == directory or (directory.startswith(place) and directory[len(place) :][:1] == "/")


class Container:
    """One container of a pod set, of any role.

    Attributes:
        spec: the container itself.
        path: its path from the root of the workload.
        role: ``REGULAR``, ``INIT``, ``SIDECAR`` (an init container that keeps running) or ``EPHEMERAL``.
        name: its name; empty if it has none yet.
        limits: its resource limits, as written.
        requests: its resource requests, as written.
        stated: its limits and requests as numbers.
        shared_memory: its mount at /dev/shm, cached by :meth:`PodSet.shared_memory`; ``NOT_READ`` until that looks for one.
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
        """Read resources and mounts again after an edit."""
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
        """Return the quantity of ``resource`` under ``kind`` (``limits`` or ``requests``) as written; None if absent."""
        return (self.limits if kind == "limits" else self.requests).get(resource)

    def place(self, kind: str, resource: str) -> Path:
        """Return the path of ``resource`` under ``kind``."""
        return (*self.path, "resources", kind, resource)

    @property
    def amounts(self) -> ContainerResources:
        """Memory and CPU, limits and requests.

        Raises:
            MalformedError: one of them is no quantity.
        """
        amounts = self.stated.amounts
        if type(amounts) is Fault:
            raise MalformedError(self.place(amounts.kind, amounts.resource), amounts.problem)
        return amounts

    @property
    def every(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """All limits and requests by resource, as stated: bytes, millicores or counts.

        Raises:
            MalformedError: one of them is no quantity.
        """
        amounts = self.stated.every
        if type(amounts) is Fault:
            raise MalformedError(self.place(amounts.kind, amounts.resource), amounts.problem)
        return amounts

    def memory(self, kind: str) -> int | None:
        """Return memory under ``kind`` in bytes; None if it is not stated."""
        return self.amounts.memory_limit if kind == "limits" else self.amounts.memory_request

    def cpu(self, kind: str) -> int | None:
        """Return CPU under ``kind`` in millicores; None if it is not stated."""
        return self.amounts.cpu_limit if kind == "limits" else self.amounts.cpu_request

    def count(self, kind: str, resource: str) -> int | None:
        """Return the amount of ``resource`` under ``kind``, a fraction rounded up to a whole number; None if not stated."""
        written = self.raw(kind, resource)
        try:
            return None if written is None else whole(written)
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def is_fraction(self, kind: str, resource: str) -> bool:
        """Return whether the stated amount is no whole number."""
        written = self.raw(kind, resource)
        try:
            return written is not None and exact(written).denominator != 1
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def accelerators(self) -> dict[str, int]:
        """Return the requested accelerators: resource name to count, without counts of zero.

        Raises:
            MalformedError: a count is no quantity.
        """
        counts = self.stated.accelerators
        if type(counts) is Fault:
            raise MalformedError(self.place(counts.kind, counts.resource), counts.problem)
        return counts

    def claims(self) -> list[str]:
        """Return the names of the pod's resource claims that the container uses."""
        resources = self.spec.get("resources")
        if not resources or "claims" not in resources:
            return []
        path = (*self.path, "resources")
        claims = mappings(resources, "claims", path)
        names = (string(claim, "name", (*path, "claims", at)) for at, claim in enumerate(claims))
        return [name for name in names if name]

    def mount_at(self, directory: str) -> Object | None:
        """Return the mount at ``directory`` in any spelling, or at a parent directory; None if there is none."""
        for at, mount in enumerate(mappings(self.spec, "volumeMounts", self.path)):
            written = mount.get("mountPath")
            if type(written) is not str:
                written = string(mount, "mountPath", (*self.path, "volumeMounts", at))
            if written is not None and _shows(written, directory):
                return mount
        return None

    def env(self, name: str) -> Object | None:
        """Return the environment entry called ``name``; None if there is none."""
        for entry in mappings(self.spec, "env", self.path):
            if entry.get("name") == name:
                return entry
        return None


SHM_DIRECTORY: Final = "/dev/shm"  # noqa: S108 - the mount path that containers use
