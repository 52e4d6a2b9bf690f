"""Sets of equal pods in an object under review, and values derived from their containers."""

from collections.abc import Hashable, Sequence
from typing import Final

from gpugate.policies.kube.fields import Object, Path, mapping, mappings, metadata_map
from gpugate.policies.workloads.container import EPHEMERAL, INIT, NOT_READ, REGULAR, SHM_DIRECTORY, SIDECAR, Container, SharedMemory
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.pod_set_sources import PodSetSize, PodSetSource
from gpugate.policies.workloads.requests import PodTotals, totals_of

#: Length of the path of a container below the pods: ``spec``, the list, the index.
_DEPTH: Final = 3
#: Stands for a key that is not computed yet.
NO_KEY: Final = b""
_CONTAINER_FIELDS: Final = (("initContainers", INIT), ("containers", REGULAR), ("ephemeralContainers", EPHEMERAL))


class PodSet:
    """A set of equal pods: a pod, or the pods of one template.

    Attributes:
        root: the object with ``metadata`` and ``spec``.
        path: its path in the object under review.
        count: the number of pods; None if the object does not set it (DaemonSet).
        spec: the pod spec.
        gpu_claims: names of the pod's resource claims that request a GPU (dynamic resource allocation).
        slice_claims: names of those GPU claims that may request a part of a GPU.
        containers: all containers in the order in which the kubelet starts them: init containers and sidecars first; none before
            :meth:`read_containers` if they are ``unread``.
        predicted_tolerations: tolerations that the pods will get at creation, besides those of the spec.
        selection_key: key of all pods that select the same nodes, cached for
            :func:`gpugate.policies.scheduling.node_selection.node_candidates`; None until it is computed.
        tolerations_key: key of all pods with the same tolerations, cached for
            :func:`gpugate.policies.scheduling.node_selection.tolerations_key`; ``NO_KEY`` until it is computed.
        kind: the kind that creates the pods: of the workload, or of an object that it wraps.
        numbers: the pod counts, in total and per child.
        follows: whether the pods start after other pods of the workload have run.
        starts_late: whether the pods wait for the other pods.
        resources_at: path of the resources, if the object has no other field of these pods; None if it has their template.
    """

    __slots__ = (
        *("_holders", "_totals", "_volumes", "containers", "count", "follows", "gpu_claims", "kind", "numbers", "path"),
        *("predicted_tolerations", "resources_at", "root", "selection_key", "slice_claims", "spec", "starts_late"),
        "tolerations_key",
    )

    def __init__(  # noqa: PLR0913 - one argument a property of the pods
        self,
        root: Object,
        spec: Object,
        path: Path,
        count: int | None,
        gpu_claims: frozenset[str],
        slice_claims: frozenset[str] = frozenset(),
        *,
        source: PodSetSource | None = None,
        unread: bool = False,
    ) -> None:
        self.root = root
        self.path = path
        self.count = count
        self.spec = spec
        self.gpu_claims = gpu_claims
        self.slice_claims = slice_claims
        self.containers: tuple[Container, ...] = ()
        if not unread:
            self.read_containers()
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
        self._volumes: dict[str, tuple[int, Object]] | None = None
        self._holders: list[Container] | None = None
        self.selection_key: tuple[Hashable, ...] | None = None
        self.tolerations_key: bytes | None = NO_KEY

    def read_containers(self) -> None:
        """Read the containers; raise a ``MalformedError`` for a field of a wrong type."""
        spec, path = self.spec, (*self.path, "spec")
        containers: list[Container] = []
        for field, role in _CONTAINER_FIELDS:
            if field in spec:
                for index, container in enumerate(mappings(spec, field, path)):
                    is_sidecar = role is INIT and container.get("restartPolicy") == "Always"
                    containers.append(Container(container, (*path, field, index), SIDECAR if is_sidecar else role))
        self.containers = tuple(containers)

    def refresh(self) -> None:
        """Drop all cached values."""
        self._forget()
        for container in self.containers:
            container.reload()

    def reload(self, resources: Sequence[Path]) -> None:
        """Drop the cached values of mounts and tolerations, and those of memory and CPU after edits at the paths ``resources``."""
        self._volumes = None
        self.tolerations_key = NO_KEY
        for container in self.containers:
            container.shared_memory = NOT_READ
        if not resources:
            return
        self._totals = None
        depth = len(self.path) + _DEPTH
        stems = {path[:depth] for path in resources}
        for container in self.containers:
            if container.path in stems:
                container.reload()

    def predict(self, tolerations: tuple[Object, ...]) -> None:
        """Add ``tolerations`` that the pods will get at creation."""
        self.predicted_tolerations = (*self.predicted_tolerations, *tolerations)
        self.tolerations_key = NO_KEY

    @property
    def is_whole(self) -> bool:
        """Whether the object has the template of the pods, and not the resources of one container alone."""
        return self.resources_at is None

    def path_in_object(self, path: Path) -> Path | None:
        """Return the path in the object of a ``path`` below these pods; None if the object has no such field."""
        if self.resources_at is None:
            return path
        stem = (*self.path, "spec", "containers", 0, "resources")
        return (*self.resources_at, *path[len(stem) :]) if path[: len(stem)] == stem else None

    @property
    def totals(self) -> PodTotals:
        """The sums over the containers; a count of accelerators that is no quantity raises a ``MalformedError``."""
        if self._totals is None:
            self._totals = totals_of(self.containers)
        return self._totals

    def path_like(self, base: Path, pattern: Path) -> Path:
        """Return ``base`` and ``pattern`` of the kind as one path, each ``"*"`` replaced by the part of these pods' path."""
        return (*base, *(self.path[index] if part == "*" else part for index, part in enumerate(pattern, len(base))))

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
        if type(labels) is dict:
            return labels
        return metadata_map(self.root, "labels", self.path)

    def annotations(self) -> Object:
        """Return the pods' annotations."""
        metadata = self.root.get("metadata")
        annotations = metadata.get("annotations") if type(metadata) is dict else None
        if type(annotations) is dict:
            return annotations
        return metadata_map(self.root, "annotations", self.path)

    def holds(self, container: Container) -> bool:
        """Whether ``container`` itself requests an accelerator, by resource or by claim."""
        if container.accelerators():
            return True
        return bool(self.gpu_claims) and not self.gpu_claims.isdisjoint(container.claims())

    def holders(self) -> list[Container]:
        """Return the containers that request accelerators, without ephemeral ones (the API gives them none)."""
        if self._holders is None:
            if self.gpu_claims:
                containers = [container for container in self.containers if container.role is not EPHEMERAL]
                self._holders = [container for container in containers if self.holds(container)]
            else:
                self._holders = [self.containers[index] for index in self.totals.holders]
        return self._holders

    def accelerators(self) -> dict[str, int]:
        """Return the counts of one pod for the scheduler, by accelerator name."""
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
        """Return the volume of this ``name`` with its index; None if there is none."""
        if type(name) is not str:
            return None
        if self._volumes is None:
            self._volumes = {}
            for index, volume in enumerate(self.volumes()):
                own = volume.get("name")
                if type(own) is str:
                    self._volumes.setdefault(own, (index, volume))
        return self._volumes.get(name)

    def shared_memory(self, container: Container) -> SharedMemory | None:
        """Return the mount of ``container`` at /dev/shm or at a parent directory; None if there is none."""
        if container.shared_memory is NOT_READ:
            mount = container.mount_at(SHM_DIRECTORY) if "volumeMounts" in container.spec else None
            container.shared_memory = None if mount is None else self._with_volume(mount)
        return container.shared_memory

    def memory_volumes(self, container: Container) -> dict[str, SharedMemory]:
        """Return the memory-backed volumes that ``container`` may write, by name."""
        volumes: dict[str, SharedMemory] = {}
        for mount in mappings(container.spec, "volumeMounts", container.path):
            name = str(mount.get("name"))
            indexed = self.volume(name)
            if indexed is not None and mount.get("readOnly") is not True:
                volume = SharedMemory(mount, indexed[1], self.field("volumes", indexed[0]))
                if volume.is_memory:
                    volumes.setdefault(name, volume)
        return volumes

    def _with_volume(self, mount: Object) -> SharedMemory:
        index, volume = self.volume(mount.get("name")) or (None, None)
        return SharedMemory(mount, volume, self.field("volumes") if index is None else self.field("volumes", index))

    def is_windows(self) -> bool:
        """Whether the pods run on Windows, where the rules about Linux memory and devices do not apply."""
        return "os" in self.spec and mapping(self.spec, "os", self.field()).get("name") == "windows"
