"""A container of a pod, its resources, and its mount at /dev/shm. Its amounts raise a ``MalformedError`` if they are no quantity.

A memory-backed emptyDir is a tmpfs whose pages are charged to the container that writes them and count against that
container's memory limit; it may grow to the smallest of node allocatable, the pod's memory limit and ``sizeLimit``
(kubernetes/website issue 36494, kubernetes/kubernetes issue 125852).
"""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping, mappings, string, wrong_type
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.quantity import QuantityError, exact, whole
from gpugate.policies.workloads.resources import NO_RESOURCES, ContainerResources, Fault, read_resources

REGULAR: Final = "container"
INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"
SHM_DIRECTORY: Final = "/dev/shm"  # noqa: S108 - the mount path that containers use

_Number = TypeVar("_Number")


def is_memory_volume(volume: Object) -> bool:
    """Return whether ``volume`` is an emptyDir in memory."""
    source = volume.get("emptyDir")
    return type(source) is dict and source.get("medium") == "Memory"


class SharedMemory(NamedTuple):
    """The mount of a container at /dev/shm or at a parent directory, with its volume, if the pod has it, and the volume's path."""

    mount: Object
    volume: Object | None
    place: Path

    @property
    def is_memory(self) -> bool:
        """True if the volume is an emptyDir in memory."""
        return is_memory_volume(self.volume or {})

    @property
    def size_limit(self) -> int | None:
        """Its ``sizeLimit`` in bytes; None if it has none."""
        size = mapping(self.volume or {}, "emptyDir", self.place).get("sizeLimit")
        try:
            return None if size is None else whole(size)
        except QuantityError as error:
            raise MalformedError((*self.place, "emptyDir", "sizeLimit"), str(error)) from None


#: Value before :meth:`PodSet.shared_memory` looks for a mount.
NOT_READ: Final = SharedMemory({}, None, ())
#: Maximum length of a name in the API; results for longer texts are not cached, to limit memory.
LONGEST_NAME: Final = 63


@cached(4096)
def normal_path(written: str) -> str:
    """Return a mount path as the kernel sees it; the root becomes ``//``, since it is no parent of other mounts here."""
    normal = posixpath.normpath("/" + written.lstrip("/"))
    return "//" if normal == "/" else normal


@cached(4096)
def _contains(mount_path: str, directory: str) -> bool:
    """Return whether a mount path, in any spelling, is ``directory`` or a parent of it."""
    path = normal_path(mount_path)
    return path == directory or directory.startswith(f"{path}/")


class Container:
    """A container of a pod set.

    Attributes:
        spec: the container itself.
        path: its path from the root of the workload.
        role: ``REGULAR``, ``INIT``, ``SIDECAR`` (an init container that keeps running) or ``EPHEMERAL``.
        name: its name; empty if it has none yet.
        limits: its resource limits, as written.
        requests: its resource requests, as written.
        stated: its limits and requests as numbers.
        shared_memory: its mount at /dev/shm, cached by :meth:`PodSet.shared_memory`; ``NOT_READ`` before.
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
            self.stated = NO_RESOURCES
            return
        if type(resources) is not dict:
            raise wrong_type((*self.path, "resources"), "a map", resources)
        limits, requests = resources.get("limits"), resources.get("requests")
        self.limits = limits if type(limits) is dict else mapping(resources, "limits", (*self.path, "resources"))
        self.requests = requests if type(requests) is dict else mapping(resources, "requests", (*self.path, "resources"))
        self.stated = read_resources(resources, self.limits, self.requests)

    def raw(self, kind: str, resource: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the quantity of ``resource`` under ``kind`` (``limits`` or ``requests``) as written; None if absent."""
        return (self.limits if kind == "limits" else self.requests).get(resource)

    def place(self, kind: str, resource: str) -> Path:
        """Return the path of ``resource`` under ``kind``."""
        return (*self.path, "resources", kind, resource)

    @property
    def amounts(self) -> ContainerResources:
        """Memory and CPU, limits and requests."""
        amounts = self.stated.amounts
        if type(amounts) is Fault:
            raise MalformedError(self.place(amounts.kind, amounts.resource), amounts.problem)
        return amounts

    @property
    def every(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """All limits and requests by resource: bytes, millicores or counts."""
        amounts = self.stated.every
        if type(amounts) is Fault:
            raise MalformedError(self.place(amounts.kind, amounts.resource), amounts.problem)
        return amounts

    def memory(self, kind: str) -> int | None:
        """Return memory under ``kind`` in bytes; None if absent."""
        return self.amounts.memory_limit if kind == "limits" else self.amounts.memory_request

    def count(self, kind: str, resource: str) -> int | None:
        """Return the amount of ``resource`` under ``kind``, rounded up to a whole number; None if absent."""
        return self._parse(whole, kind, resource)

    def is_fraction(self, kind: str, resource: str) -> bool:
        """Return whether the amount of ``resource`` under ``kind`` is no whole number."""
        amount = self._parse(exact, kind, resource)
        return amount is not None and amount.denominator != 1

    def _parse(self, parse: Callable[[object], _Number], kind: str, resource: str) -> _Number | None:
        quantity = self.raw(kind, resource)
        try:
            return None if quantity is None else parse(quantity)
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def accelerators(self) -> dict[str, int]:
        """Return the counts of the requested accelerators by resource name, without zeros."""
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
        claims = enumerate(mappings(resources, "claims", path))
        names = (string(claim, "name", (*path, "claims", index)) for index, claim in claims)
        return [name for name in names if name]

    def mount_at(self, directory: str) -> Object | None:
        """Return the mount at ``directory`` in any spelling, or at a parent directory; None if there is none."""
        for index, mount in enumerate(mappings(self.spec, "volumeMounts", self.path)):
            path = mount.get("mountPath")
            if type(path) is not str:
                path = string(mount, "mountPath", (*self.path, "volumeMounts", index))
            if path is not None and _contains(path, directory):
                return mount
        return None

    def env(self, name: str) -> Object | None:
        """Return the first environment entry of this ``name``; None if there is none."""
        for entry in mappings(self.spec, "env", self.path):
            if entry.get("name") == name:
                return entry
        return None
