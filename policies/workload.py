"""The lens: any kind of workload as sets of alike pods and their containers.

Nothing is copied: the lens reads the very object under review, so what an edit changed is seen by the next rule.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, Final

from gpugate.policies.accelerators import Form, form_of, is_accelerator
from gpugate.policies.fields import (
    MalformedError,
    Object,
    Path,
    integer,
    lookup,
    mapping,
    mappings,
    string,
)
from gpugate.policies.kinds import Kind, PodSetPlace
from gpugate.policies.quantity import QuantityError, exact, millicores, whole

REGULAR: Final = "container"
INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"


class Container:
    """One container of a pod set, of any role.

    Attributes:
        spec: the container itself.
        path: its path from the root of the workload.
        role: ``REGULAR``, ``INIT``, ``SIDECAR`` (an init container that keeps running) or ``EPHEMERAL``.
        name: its name, empty where it has none yet.
    """

    __slots__ = ("name", "path", "resources", "role", "spec")

    def __init__(self, spec: Object, path: Path, role: str) -> None:
        self.spec = spec
        self.path = path
        self.role = role
        self.name = string(spec, "name", path) or ""
        self.resources = mapping(spec, "resources", path)

    def raw(self, kind: str, resource: str) -> Any:  # noqa: ANN401 - a quantity as somebody wrote it
        """The quantity of ``resource`` under ``kind`` (``limits`` or ``requests``) as written; None where absent."""
        amounts = self.spec.get("resources")
        found = amounts.get(kind) if amounts else None
        return found.get(resource) if found else None

    def _amounts(self, kind: str) -> Object:
        resources = mapping(self.spec, "resources", self.path)
        return mapping(resources, kind, (*self.path, "resources"))

    def place(self, kind: str, resource: str) -> Path:
        """The path of ``resource`` under ``kind``."""
        return (*self.path, "resources", kind, resource)

    def _read(self, kind: str, resource: str, unit: Any) -> int | None:  # noqa: ANN401 - a function of quantity
        written = self.raw(kind, resource)
        if written is None:
            return None
        try:
            amount: int = unit(written)
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None
        return amount

    def memory(self, kind: str) -> int | None:
        """Memory under ``kind`` in bytes; None where it is not stated."""
        return self._read(kind, "memory", whole)

    def cpu(self, kind: str) -> int | None:
        """CPU under ``kind`` in millicores; None where it is not stated."""
        return self._read(kind, "cpu", millicores)

    def count(self, kind: str, resource: str) -> int | None:
        """The whole number of an extended ``resource`` under ``kind``, a fraction rounded up; None where not stated."""
        return self._read(kind, resource, whole)

    def is_fraction(self, kind: str, resource: str) -> bool:
        """Whether the stated amount is no whole number."""
        written = self.raw(kind, resource)
        try:
            return written is not None and exact(written).denominator != 1
        except QuantityError as error:
            raise MalformedError(self.place(kind, resource), str(error)) from None

    def extended(self) -> list[str]:
        """Names under limits and requests that could be extended resources (with a ``/``), sorted."""
        names = {name for kind in ("limits", "requests") for name in self._amounts(kind) if "/" in name}
        return sorted(names) if len(names) > 1 else list(names)

    def accelerators(self) -> dict[str, int]:
        """Accelerators that the container asks for: resource name to count, none with a count of zero."""
        found: dict[str, int] = {}
        for kind in ("limits", "requests"):
            for name in self._amounts(kind):
                if "/" in name and is_accelerator(name):
                    count = self.count(kind, name) or 0
                    if count > found.get(name, 0):
                        found[name] = count
        return found

    def claims(self) -> list[str]:
        """Names of the pod's resource claims that the container uses."""
        if "claims" not in self.resources:
            return []
        path = (*self.path, "resources")
        names = (string(claim, "name", (*path, "claims", at)) for at, claim in enumerate(mappings(self.resources, "claims", path)))
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
            place = posixpath.normpath("/" + written.lstrip("/"))
            if place == directory or (place != "/" and directory.startswith(place + "/")):
                return mount
        return None

    def env(self, name: str) -> Object | None:
        """The environment entry called ``name``; None where there is none."""
        for entry in mappings(self.spec, "env", self.path):
            if entry.get("name") == name:
                return entry
        return None


class PodSet:
    """A set of alike pods: a pod, or the template of a controller.

    Attributes:
        root: the object with ``metadata`` and ``spec``.
        path: its path from the root of the workload.
        count: how many such pods there are to be; None where the workload does not say (DaemonSet).
        spec: the pod spec.
        gpu_claims: names of the pod's resource claims that stand for a GPU (dynamic resource allocation).
        containers: all containers, init containers and sidecars first as the kubelet starts them.
    """

    __slots__ = ("_accelerators", "containers", "count", "gpu_claims", "path", "root", "spec")

    def __init__(self, root: Object, path: Path, count: int | None, gpu_claims: frozenset[str]) -> None:
        self.root = root
        self.path = path
        self.count = count
        self.spec = mapping(root, "spec", path)
        self.gpu_claims = gpu_claims
        self.containers: tuple[Container, ...] = tuple(self._walk())
        self._accelerators: dict[str, int] | None = None

    def _walk(self) -> Iterator[Container]:
        spec, path = self.spec, (*self.path, "spec")
        if "initContainers" in spec:
            for at, container in enumerate(mappings(spec, "initContainers", path)):
                role = SIDECAR if container.get("restartPolicy") == "Always" else INIT
                yield Container(container, (*path, "initContainers", at), role)
        for at, container in enumerate(mappings(spec, "containers", path)):
            yield Container(container, (*path, "containers", at), REGULAR)
        if "ephemeralContainers" in spec:
            for at, container in enumerate(mappings(spec, "ephemeralContainers", path)):
                yield Container(container, (*path, "ephemeralContainers", at), EPHEMERAL)

    def refresh(self) -> None:
        """Forget what was worked out from the containers, after an edit changed them."""
        self._accelerators = None

    def field(self, *parts: str | int) -> Path:
        """A path below the pod spec."""
        return (*self.path, "spec", *parts)

    def meta(self, *parts: str) -> Path:
        """A path below the pods' metadata."""
        return (*self.path, "metadata", *parts)

    def labels(self) -> Object:
        """The pods' labels."""
        return mapping(mapping(self.root, "metadata", self.path), "labels", self.meta())

    def annotations(self) -> Object:
        """The pods' annotations."""
        return mapping(mapping(self.root, "metadata", self.path), "annotations", self.meta())

    def holds(self, container: Container) -> bool:
        """Whether ``container`` itself asks for an accelerator, by resource or by claim."""
        if container.accelerators():
            return True
        return bool(self.gpu_claims) and not self.gpu_claims.isdisjoint(container.claims())

    def holders(self) -> list[Container]:
        """The containers that ask for accelerators, ephemeral ones left out (the API gives them none)."""
        return [one for one in self.containers if one.role is not EPHEMERAL and self.holds(one)]

    def accelerators(self) -> dict[str, int]:
        """What the scheduler counts for one pod: accelerator name to count."""
        if self._accelerators is None:
            total: dict[str, int] = {}
            sidecars: dict[str, int] = {}
            peak: dict[str, int] = {}
            for container in self.containers:
                for name, count in container.accelerators().items():
                    if container.role is INIT:
                        peak[name] = max(peak.get(name, 0), count + sidecars.get(name, 0))
                    elif container.role is not EPHEMERAL:
                        total[name] = total.get(name, 0) + count
                        if container.role is SIDECAR:
                            sidecars[name] = sidecars.get(name, 0) + count
            for name, count in peak.items():
                total[name] = max(total.get(name, 0), count)
            self._accelerators = total
        return self._accelerators

    def asks(self) -> bool:
        """Whether a pod of the set asks for an accelerator at all."""
        return bool(self.accelerators()) or bool(self.gpu_claims)

    def whole_devices(self) -> int:
        """How many whole devices one pod holds; zero where it holds slices, shares or none."""
        return sum(count for name, count in self.accelerators().items() if form_of(name) is Form.WHOLE) or len(self.gpu_claims)

    def volumes(self) -> list[Object]:
        """The pod's volumes."""
        return mappings(self.spec, "volumes", self.field())

    def volume(self, name: object) -> tuple[int, Object] | None:
        """The volume called ``name``, with its index; None where there is none."""
        for at, volume in enumerate(self.volumes()):
            if volume.get("name") == name:
                return at, volume
        return None

    def is_windows(self) -> bool:
        """Whether the pods are for Windows, where no rule about Linux's memory or devices applies."""
        return bool(mapping(self.spec, "os", self.field()).get("name") == "windows")


def find_pod_sets(place: PodSetPlace, root: Object) -> Iterator[tuple[Path, Object, int | None]]:
    """Every template at ``place`` in ``root``: its path, itself, and how many pods it makes.

    Raises:
        MalformedError: something on the way is of the wrong type.
    """
    for path in _expand(root, place.template, ()):
        template = lookup(root, path)
        if template is None:
            continue
        if type(template) is not dict:
            raise MalformedError(path, "must be a map")
        if place.count is None:
            yield path, template, None if path else 1
            continue
        stars = iter([part for part, pattern in zip(path, place.template, strict=True) if pattern == "*"])
        at = tuple(next(stars) if part == "*" else part for part in place.count)
        parent = lookup(root, at[:-1])
        count = integer(parent, str(at[-1]), at[:-1]) if type(parent) is dict else None
        yield path, template, place.default_count if count is None else count


def _expand(root: Object, pattern: Path, done: Path) -> Iterator[Path]:
    if "*" not in pattern:
        yield (*done, *pattern)
        return
    at = pattern.index("*")
    stem = (*done, *pattern[:at])
    holder = lookup(root, stem)
    keys: list[Any] = sorted(holder) if type(holder) is dict else list(range(len(holder))) if type(holder) is list else []
    for key in keys:
        yield from _expand(root, pattern[at + 1 :], (*stem, key))


class Workload:
    """One object under review.

    Attributes:
        kind: its entry in the table of kinds.
        root: the object itself.
        namespace: the namespace it is in, from the request or its metadata.
        old: the object it replaces, for an UPDATE.
        operation: ``CREATE`` or ``UPDATE``.
        subresource: ``resize``, ``ephemeralcontainers`` or empty.
        pod_sets: its pods.
    """

    __slots__ = ("kind", "namespace", "old", "operation", "pod_sets", "root", "subresource")

    def __init__(
        self,
        kind: Kind,
        root: Object,
        namespace: str,
        pod_sets: tuple[PodSet, ...],
        *,
        operation: str = "CREATE",
        old: Object | None = None,
        subresource: str = "",
    ) -> None:
        self.kind = kind
        self.root = root
        self.namespace = namespace
        self.pod_sets = pod_sets
        self.operation = operation
        self.old = old
        self.subresource = subresource

    def metadata(self) -> Object:
        """The object's metadata."""
        return mapping(self.root, "metadata", ())

    @property
    def name(self) -> str:
        """The object's name; empty while it has only a generateName."""
        return string(self.metadata(), "name", ("metadata",)) or ""

    def labels(self) -> Object:
        """The object's own labels."""
        return mapping(self.metadata(), "labels", ("metadata",))

    def annotations(self) -> Object:
        """The object's own annotations."""
        return mapping(self.metadata(), "annotations", ("metadata",))

    def annotation(self, key: str) -> str | None:
        """The object's own annotation ``key``, or that of its only template; None where neither has it."""
        own = string(self.annotations(), key, ("metadata", "annotations"))
        if own is None and len(self.pod_sets) == 1:
            pods = self.pod_sets[0]
            own = string(pods.annotations(), key, pods.meta("annotations"))
        return own

    def asking(self) -> list[PodSet]:
        """The pod sets whose pods ask for accelerators and run on Linux."""
        return [pods for pods in self.pod_sets if pods.asks() and not pods.is_windows()]

    def is_pod(self) -> bool:
        """Whether the object is a pod itself."""
        return self.kind.kind == "Pod"

    def controller(self) -> Object | None:
        """The ownerReference of the controller that made the object; None where somebody else did."""
        if "ownerReferences" not in self.metadata():
            return None
        for owner in mappings(self.metadata(), "ownerReferences", ("metadata",)):
            if owner.get("controller") is True:
                return owner
        return None

    def is_template(self) -> bool:
        """Whether edits reach the pods through a template that somebody's Git may state."""
        return not self.is_pod() and self.controller() is None

    def refresh(self) -> None:
        """Forget what was worked out, after edits."""
        for pods in self.pod_sets:
            pods.refresh()
