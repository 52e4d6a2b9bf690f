"""A set of equal pods in an object under review, and values derived from their containers."""

from collections.abc import Hashable, Sequence

from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.workloads.container import EPHEMERAL, INIT, NOT_READ, REGULAR, SHM_DIRECTORY, SIDECAR, Container, SharedMemory
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.pod_set_sources import PodSetSize, PodSetSource
from gpugate.policies.workloads.requests import PodTotals, totals_of


class PodSet:
    """A set of equal pods: a pod, or the pods of one template.

    Attributes:
        root: the object with ``metadata`` and ``spec``.
        path: its path in the object under review.
        count: the number of pods; None if the object does not state it (DaemonSet).
        spec: the pod spec.
        gpu_claims: names of the pod's resource claims that request a GPU (dynamic resource allocation).
        slice_claims: names of those of them that may request a part of a GPU.
        containers: all containers in the order in which the kubelet starts them: init containers and sidecars first.
        predicted_tolerations: tolerations that the pods will get at creation, besides those of the spec.
        selection_key: key of all pods that select the same nodes, cached for
            :func:`gpugate.policies.scheduling.node_selection.node_candidates`; None until it is computed.
        kind: the kind that creates the pods: the workload's own, or that of an object which it wraps.
        numbers: the pod counts, in total and per child.
        follows: whether the pods start after others of the workload have run.
        starts_late: whether the pods wait for the others themselves.
        resources_at: path of the resources, if the object states nothing else of these pods; None if it states them whole.
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
        source: PodSetSource | None = None,
    ) -> None:
        self.root = root
        self.path = path
        self.count = count
        self.spec = spec
        self.gpu_claims = gpu_claims
        self.slice_claims = slice_claims
        self.containers = self._walk()
        self.predicted_tolerations: tuple[Object, ...] = ()
        if source is None:
            self.kind, self.numbers, self.follows, self.starts_late = POD, PodSetSize(count, count), False, False
            self.resources_at: Path | None = None
        else:
            self.kind, self.numbers, self.follows = source.kind, source.numbers, source.follows
            self.starts_late = source.place.starts_late
            resources = source.place.resources
            self.resources_at = None if resources is None else (*source.path, resources[-1])
        self._forget()

    def _forget(self) -> None:
        self._totals: PodTotals | None = None
        self._holders: list[Container] | None = None
        self.selection_key: tuple[Hashable, ...] | None = None

    def _walk(self) -> tuple[Container, ...]:
        spec, path = self.spec, (*self.path, "spec")
        containers: list[Container] = []
        if "initContainers" in spec:
            for at, container in enumerate(mappings(spec, "initContainers", path)):
                role = SIDECAR if container.get("restartPolicy") == "Always" else INIT
                containers.append(Container(container, (*path, "initContainers", at), role))
        for at, container in enumerate(mappings(spec, "containers", path)):
            containers.append(Container(container, (*path, "containers", at), REGULAR))
        if "ephemeralContainers" in spec:
            for at, container in enumerate(mappings(spec, "ephemeralContainers", path)):
                containers.append(Container(container, (*path, "ephemeralContainers", at), EPHEMERAL))
        return tuple(containers)

    def refresh(self) -> None:
        """Drop all cached values, after an edit changed what they derive from."""
        self._forget()
        for container in self.containers:
            container.reload()

    def reload(self, touched: Sequence[Path]) -> None:
        """Drop the cached values that derive from memory, CPU and mounts at the paths ``touched``."""
        self._totals = None
        for container in self.containers:
            container.shared_memory = NOT_READ
            depth = len(container.path)
            for path in touched:
                if path[:depth] == container.path:
                    container.reload()
                    break

    @property
    def is_whole(self) -> bool:
        """Whether the object states its pods whole, and not the resources of one container alone."""
        return self.resources_at is None

    def path_in_object(self, path: Path) -> Path | None:
        """Return the path in the object of ``path`` below these pods; None if the object has no such field."""
        if self.resources_at is None:
            return path
        stem = (*self.path, "spec", "containers", 0, "resources")
        return (*self.resources_at, *path[len(stem) :]) if path[: len(stem)] == stem else None

    @property
    def totals(self) -> PodTotals:
        """Return the sums over the containers.

        Raises:
            MalformedError: a count of accelerators is no quantity.
        """
        totals = self._totals
        if totals is None:
            totals = self._totals = totals_of(self.containers)
        return totals

    def path_like(self, base: Path, pattern: Path) -> Path:
        """Return ``base`` and ``pattern`` of the kind as one path, each ``"*"`` replaced by what these pods have there."""
        depth = len(base)
        return (*base, *(self.path[depth + at] if part == "*" else part for at, part in enumerate(pattern)))

    def field(self, *parts: str | int) -> Path:
        """Return a path below the pod spec."""
        return (*self.path, "spec", *parts)

    def meta(self, *parts: str) -> Path:
        """Return a path below the pods' metadata."""
        return (*self.path, "metadata", *parts)

    def labels(self) -> Object:
        """Return the pods' labels."""
        metadata = self.root.get("metadata")
        labels = metadata.get("labels") if type(metadata) is dict else None
        return labels if type(labels) is dict else mapping(mapping(self.root, "metadata", self.path), "labels", self.meta())

    def annotations(self) -> Object:
        """Return the pods' annotations."""
        metadata = self.root.get("metadata")
        annotations = metadata.get("annotations") if type(metadata) is dict else None
        if type(annotations) is dict:
            return annotations
        return mapping(mapping(self.root, "metadata", self.path), "annotations", self.meta())

    def holds(self, container: Container) -> bool:
        """Whether ``container`` itself requests an accelerator, by resource or by claim."""
        if container.accelerators():
            return True
        return bool(self.gpu_claims) and not self.gpu_claims.isdisjoint(container.claims())

    def holders(self) -> list[Container]:
        """Return the containers that request accelerators, without ephemeral ones (the API gives them none)."""
        holders = self._holders
        if holders is None:
            if self.gpu_claims:
                holders = [container for container in self.containers if container.role is not EPHEMERAL and self.holds(container)]
            else:
                holders = [self.containers[at] for at in self.totals.holders]
            self._holders = holders
        return holders

    def accelerators(self) -> dict[str, int]:
        """Return what the scheduler counts for one pod: accelerator name to count."""
        return self.totals.accelerators

    def requests_gpu(self) -> bool:
        """Whether a pod of the set requests an accelerator."""
        return bool(self.totals.accelerators) or bool(self.gpu_claims)

    def whole_devices(self) -> int:
        """Return the number of whole devices of one pod; zero if it has slices, shares or none."""
        return self.totals.whole_devices or len(self.gpu_claims - self.slice_claims)

    def volumes(self) -> list[Object]:
        """Return the pod's volumes."""
        return mappings(self.spec, "volumes", self.field())

    def volume(self, name: object) -> tuple[int, Object] | None:
        """Return the volume called ``name`` with its index; None if there is none."""
        for at, volume in enumerate(self.volumes()):
            if volume.get("name") == name:
                return at, volume
        return None

    def shared_memory(self, container: Container) -> SharedMemory | None:
        """Return what ``container`` mounts at /dev/shm or above it; None if it mounts nothing there."""
        found = container.shared_memory
        if found is NOT_READ:
            mount = container.mount_at(SHM_DIRECTORY) if "volumeMounts" in container.spec else None
            found = container.shared_memory = None if mount is None else self._mounted(mount)
        return found

    def _mounted(self, mount: Object) -> SharedMemory:
        found = self.volume(mount.get("name"))
        if found is None:
            return SharedMemory(mount, None, self.field("volumes"))
        at, volume = found
        return SharedMemory(mount, volume, self.field("volumes", at))

    def is_windows(self) -> bool:
        """Whether the pods run on Windows, to which no rule about Linux memory or devices applies."""
        return "os" in self.spec and mapping(self.spec, "os", self.field()).get("name") == "windows"
