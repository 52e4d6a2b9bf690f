"""The lens: any kind of workload as sets of alike pods and their containers.

Nothing is copied: the lens reads the very object under review, so what an edit changed is seen by the next rule. What it
works out from resources and selectors is kept until an edit touches those.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final

from gpugate.policies.kube.fields import Object, Path, mapping, mappings, string
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.container import EPHEMERAL, INIT, NOT_READ, REGULAR, SIDECAR, Container
from gpugate.policies.workloads.kinds import CRON_JOB, POD, WorkloadKind, kind_of
from gpugate.policies.workloads.pod_sets import PodSetSize, PodSetSource, gangs_of
from gpugate.policies.workloads.requests import PodTotals, totals_of
from gpugate.policies.workloads.shm import DIRECTORY, SharedMemory

#: Fields that decide which nodes a pod may land on (a preference does not).
_SELECTING: Final = frozenset({"nodeSelector", REQUIRED_AFFINITY})


class PodSet:
    """A set of alike pods: a pod, or the template of a controller.

    Attributes:
        root: the object with ``metadata`` and ``spec``.
        path: its path from the root of the workload.
        count: how many such pods there are to be; None where the workload does not say (DaemonSet).
        spec: the pod spec.
        gpu_claims: names of the pod's resource claims that stand for a GPU (dynamic resource allocation).
        slice_claims: names of those among them that may stand for a part of one.
        containers: all containers, init containers and sidecars first as the kubelet starts them.
        predicted_tolerations: tolerations that the pods will be given when they are made, beside those of the spec.
        selection_key: key of all pods that select the same nodes, kept for
            :func:`gpugate.policies.scheduling.node_selection.node_candidates`; None until that works it out.
        kind: the kind that makes the pods: the workload's own, or that of an object which it wraps.
        numbers: how many pods there are, in all and of each child.
        follows: whether the pods start when others of the workload have run.
        starts_late: whether the pods wait for the others themselves.
        resources_at: path of the resources where the workload states nothing else of its pods; None where it states them whole.
    """

    __slots__ = (
        "_holders",
        "_totals",
        "containers",
        "count",
        "follows",
        "gpu_claims",
        "kind",
        "numbers",
        "path",
        "predicted_tolerations",
        "resources_at",
        "root",
        "selection_key",
        "slice_claims",
        "spec",
        "starts_late",
    )

    def __init__(
        self,
        root: Object,
        spec: Object,
        path: Path,
        count: int | None,
        gpu_claims: frozenset[str],
        slice_claims: frozenset[str] = frozenset(),
        *,
        found: PodSetSource | None = None,
    ) -> None:
        self.root = root
        self.path = path
        self.count = count
        self.spec = spec
        self.gpu_claims = gpu_claims
        self.slice_claims = slice_claims
        self.containers = self._walk()
        self.predicted_tolerations: tuple[Object, ...] = ()
        if found is None:
            self.kind, self.numbers, self.follows, self.starts_late = POD, PodSetSize(count, count), False, False
            self.resources_at: Path | None = None
        else:
            self.kind, self.numbers, self.follows = found.kind, found.numbers, found.follows
            self.starts_late = found.place.starts_late
            resources = found.place.resources
            self.resources_at = None if resources is None else (*found.path, resources[-1])
        self._forget()

    def _forget(self) -> None:
        self._totals: PodTotals | None = None
        self._holders: list[Container] | None = None
        self.selection_key: tuple[Hashable, ...] | None = None

    def _walk(self) -> tuple[Container, ...]:
        spec, path = self.spec, (*self.path, "spec")
        found: list[Container] = []
        if "initContainers" in spec:
            for at, container in enumerate(mappings(spec, "initContainers", path)):
                role = SIDECAR if container.get("restartPolicy") == "Always" else INIT
                found.append(Container(container, (*path, "initContainers", at), role))
        for at, container in enumerate(mappings(spec, "containers", path)):
            found.append(Container(container, (*path, "containers", at), REGULAR))
        if "ephemeralContainers" in spec:
            for at, container in enumerate(mappings(spec, "ephemeralContainers", path)):
                found.append(Container(container, (*path, "ephemeralContainers", at), EPHEMERAL))
        return tuple(found)

    def refresh(self) -> None:
        """Forget what was worked out, after an edit changed what it rests on."""
        self._forget()
        for container in self.containers:
            container.reload()

    def reload(self, touched: Sequence[Path]) -> None:
        """Forget only what depends on memory, CPU and mounts at the paths ``touched``."""
        self._totals = None
        for container in self.containers:
            container.shared_memory = NOT_READ
            place = container.path
            depth = len(place)
            for path in touched:
                if path[:depth] == place:
                    container.reload()
                    break

    @property
    def is_whole(self) -> bool:
        """Whether the workload states its pods, and not the resources of a container alone."""
        return self.resources_at is None

    def path_in_object(self, path: Path) -> Path | None:
        """Where ``path`` below these pods is in the object; None where the object has no such place."""
        if self.resources_at is None:
            return path
        stem = (*self.path, "spec", "containers", 0, "resources")
        return (*self.resources_at, *path[len(stem) :]) if path[: len(stem)] == stem else None

    @property
    def totals(self) -> PodTotals:
        """What the containers come to together.

        Raises:
            MalformedError: a count of accelerators is no quantity.
        """
        found = self._totals
        if found is None:
            found = self._totals = totals_of(self.containers)
        return found

    def field(self, *parts: str | int) -> Path:
        """A path below the pod spec."""
        return (*self.path, "spec", *parts)

    def meta(self, *parts: str) -> Path:
        """A path below the pods' metadata."""
        return (*self.path, "metadata", *parts)

    def labels(self) -> Object:
        """The pods' labels."""
        metadata = self.root.get("metadata")
        found = metadata.get("labels") if type(metadata) is dict else None
        return found if type(found) is dict else mapping(mapping(self.root, "metadata", self.path), "labels", self.meta())

    def annotations(self) -> Object:
        """The pods' annotations."""
        metadata = self.root.get("metadata")
        found = metadata.get("annotations") if type(metadata) is dict else None
        return found if type(found) is dict else mapping(mapping(self.root, "metadata", self.path), "annotations", self.meta())

    def holds(self, container: Container) -> bool:
        """Whether ``container`` itself asks for an accelerator, by resource or by claim."""
        if container.accelerators():
            return True
        return bool(self.gpu_claims) and not self.gpu_claims.isdisjoint(container.claims())

    def holders(self) -> list[Container]:
        """The containers that ask for accelerators, ephemeral ones left out (the API gives them none)."""
        found = self._holders
        if found is None:
            if self.gpu_claims:
                found = [one for one in self.containers if one.role is not EPHEMERAL and self.holds(one)]
            else:
                found = [self.containers[at] for at in self.totals.holders]
            self._holders = found
        return found

    def accelerators(self) -> dict[str, int]:
        """What the scheduler counts for one pod: accelerator name to count."""
        return self.totals.accelerators

    def requests_gpu(self) -> bool:
        """Whether a pod of the set asks for an accelerator at all."""
        return bool(self.totals.accelerators) or bool(self.gpu_claims)

    def whole_devices(self) -> int:
        """How many whole devices one pod holds; zero where it holds slices, shares or none."""
        return self.totals.whole_devices or len(self.gpu_claims - self.slice_claims)

    def volumes(self) -> list[Object]:
        """The pod's volumes."""
        return mappings(self.spec, "volumes", self.field())

    def volume(self, name: object) -> tuple[int, Object] | None:
        """The volume called ``name``, with its index; None where there is none."""
        for at, volume in enumerate(self.volumes()):
            if volume.get("name") == name:
                return at, volume
        return None

    def shared_memory(self, container: Container) -> SharedMemory | None:
        """Return what ``container`` mounts at /dev/shm or above it; None if it mounts nothing there."""
        found = container.shared_memory
        if found is NOT_READ:
            mount = container.mount_at(DIRECTORY) if "volumeMounts" in container.spec else None
            found = container.shared_memory = None if mount is None else self._mounted(mount)
        return found

    def _mounted(self, mount: Object) -> SharedMemory:
        found = self.volume(mount.get("name"))
        if found is None:
            return SharedMemory(mount, None, self.field("volumes"))
        at, volume = found
        return SharedMemory(mount, volume, self.field("volumes", at))

    def is_windows(self) -> bool:
        """Whether the pods are for Windows, where no rule about Linux's memory or devices applies."""
        return "os" in self.spec and mapping(self.spec, "os", self.field()).get("name") == "windows"


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
        gangs: how many gangs its pods make up, each with an equal part of them.
        is_whole: whether the object states its pods whole: nothing of them is made from another object.
    """

    __slots__ = (
        *("_asking", "_is_pod", "gangs", "is_whole", "kind", "namespace"),
        *("old", "operation", "pod_sets", "root", "subresource"),
    )

    def __init__(
        self,
        kind: WorkloadKind,
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
        self.gangs = gangs_of(kind, root)
        self.is_whole = all(pods.is_whole for pods in pod_sets)
        self._is_pod = kind is POD
        self._asking: list[PodSet] | None = None

    def metadata(self) -> Object:
        """The object's metadata."""
        found = self.root.get("metadata")
        return found if type(found) is dict else mapping(self.root, "metadata", ())

    @property
    def name(self) -> str:
        """The object's name; empty while it has only a generateName."""
        return string(self.metadata(), "name", ("metadata",)) or ""

    def labels(self) -> Object:
        """The object's own labels."""
        metadata = self.root.get("metadata")
        found = metadata.get("labels") if type(metadata) is dict else None
        return found if type(found) is dict else mapping(self.metadata(), "labels", ("metadata",))

    def annotations(self) -> Object:
        """The object's own annotations."""
        metadata = self.root.get("metadata")
        found = metadata.get("annotations") if type(metadata) is dict else None
        return found if type(found) is dict else mapping(self.metadata(), "annotations", ("metadata",))

    def annotation(self, key: str) -> str | None:
        """The object's own annotation ``key``, or that of its only template; None where neither has it."""
        return self._annotation(key, most=1)

    def agreed(self, key: str) -> str | None:
        """The object's own annotation ``key``, or what all its templates, however many, say there."""
        return self._annotation(key, most=len(self.pod_sets))

    def _annotation(self, key: str, most: int) -> str | None:
        own = self.annotations().get(key)
        if own is not None and type(own) is not str:
            own = string(self.annotations(), key, ("metadata", "annotations"))
        if own is None and not self._is_pod and 0 < len(self.pod_sets) <= most:
            stated = {string(pods.annotations(), key, pods.meta("annotations")) for pods in self.pod_sets}
            own = stated.pop() if len(stated) == 1 else None
        return own

    def gpu_pod_sets(self) -> list[PodSet]:
        """The pod sets whose pods ask for accelerators and run on Linux."""
        if self._asking is None:
            self._asking = [pods for pods in self.pod_sets if pods.requests_gpu() and not pods.is_windows()]
        return self._asking

    def templated_gpu_pod_sets(self) -> list[PodSet]:
        """Those of :meth:`gpu_pod_sets` that the object states whole, so that what they lack is lacking."""
        return self.gpu_pod_sets() if self.is_whole else [pods for pods in self.gpu_pod_sets() if pods.is_whole]

    def is_pod(self) -> bool:
        """Whether the object is a pod itself."""
        return self._is_pod

    def controller(self) -> Object | None:
        """The ownerReference of the controller that made the object; None where somebody else did."""
        metadata = self.root.get("metadata")
        if type(metadata) is dict and "ownerReferences" not in metadata:
            return None
        for owner in mappings(self.metadata(), "ownerReferences", ("metadata",)):
            if owner.get("controller") is True:
                return owner
        return None

    def owner_kind(self) -> WorkloadKind | None:
        """The entry in the table for the controller that made the object; None where none did, or one that is not in it."""
        owner = self.controller()
        return None if owner is None else kind_of(str(owner.get("apiVersion")), str(owner.get("kind")))

    def owner_was_reviewed(self) -> bool:
        """Whether the pod comes from a template that was judged itself: nodes may have gone since, and its controller waits."""
        return self._is_pod and self.owner_kind() is not None

    def is_child(self) -> bool:
        """Whether the object is a part of a workload that was judged as a whole: the Job of a JobSet, but not a CronJob's."""
        owner = self.owner_kind()
        return owner is not None and owner is not CRON_JOB

    @property
    def is_batch(self) -> bool:
        """Whether it runs to completion; where it wraps others, whether all do that ask for accelerators."""
        if self.kind.wraps is None:
            return self.kind.batch
        return all(pods.kind.batch for pods in self.gpu_pod_sets())

    def path_in_object(self, path: Path) -> Path | None:
        """Where ``path`` is in the object itself; None where the object has no such place: another object has it."""
        for pods in self.pod_sets:
            if not pods.is_whole and path[: len(pods.path)] == pods.path:
                return pods.path_in_object(path)
        return path

    def reported_path(self, path: Path) -> Path:
        """Where a finding about ``path`` is told: there, or at what the object has of the pods."""
        for pods in self.pod_sets:
            if pods.resources_at is not None and path[: len(pods.path)] == pods.path:
                return pods.path_in_object(path) or pods.resources_at
        return path

    def edit_in_object(self, edit: Edit) -> Edit | None:
        """``edit`` at its place in the object itself; None where it has none, so that it is left to what is made later."""
        path = self.path_in_object(edit.path)
        return None if path is None else edit._replace(path=path)

    def is_template(self) -> bool:
        """Whether edits reach the pods through a template, which somebody else may state."""
        return not self.is_pod()

    def refresh(self) -> None:
        """Forget all that was worked out."""
        self._asking = None
        for pods in self.pod_sets:
            pods.refresh()

    def edited(self, edits: Sequence[Edit]) -> None:
        """Forget what these edits, just applied, made wrong."""
        touched: list[Path] = []
        if edits and not self.is_whole:
            self.refresh()
            return
        for edit in edits:
            effect = _effect_of(edit.path)
            if effect is _ALL:
                self.refresh()
                return
            if effect is _SOME:
                touched.append(edit.path)
        if touched:
            for pods in self.pod_sets:
                pods.reload(touched)


_ALL: Final = "all"
_SOME: Final = "some"


@lru_cache(maxsize=1024)
def _effect_of(path: Path) -> str:
    """How much of what is kept an edit at ``path`` makes wrong: all, some (memory, CPU, mounts), or nothing."""
    if path[-1] == "volumes":
        return _SOME
    if "resources" in path or "volumeMounts" in path:
        return _ALL if "/" in str(path[-1]) else _SOME
    return "" if _SELECTING.isdisjoint(path) else _ALL
