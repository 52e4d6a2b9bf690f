"""A typed view of an object under review: its pod sets and their containers.

Nothing is copied: the view reads the object itself, so each rule sees the edits of earlier rules. Values derived from resources and
selectors are cached until an edit changes these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from gpugate.policies.kube.fields import Object, Path, mapping, mappings, metadata_map, string
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.kinds import WorkloadKind, kind_of
from gpugate.policies.workloads.kinds.owners import OwnerDoubt
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.pod_set_sources import gangs_of

if TYPE_CHECKING:
    from gpugate.policies.workloads.transition import Transition

#: Fields that select the nodes of a pod (preferences do not).
_SELECTING: Final = frozenset({"nodeSelector", REQUIRED_AFFINITY})
#: Lists from which values are cached.
_LISTS: Final = frozenset({"tolerations", "volumeMounts", "volumes"})
#: The cached values that an edit invalidates: none, those of mounts and tolerations, also those of memory and CPU, or all.
_NONE, _OF_LISTS, _OF_RESOURCES, _ALL = range(4)


@dataclass(slots=True, eq=False, repr=False)
class Workload:
    """An object under review.

    Attributes:
        kind: its kind.
        root: the object itself.
        namespace: its namespace, from the request or its metadata.
        old: the object before an UPDATE.
        operation: ``CREATE`` or ``UPDATE``.
        subresource: ``resize``, ``ephemeralcontainers`` or empty.
        transition: the changes of an UPDATE; None on CREATE.
        pod_sets: its pods.
        unopened: the number of its pod templates, if they are too many to be opened as pod sets; else 0.
        gangs: the number of gangs, each with an equal part of the pods.
        owner_doubt: the doubt about the owners of an object, if its caller is no known controller; None believes them.
        parallel_jobs_are_gangs: whether the policy counts Jobs with several pods at once as gangs, though they declare none.
        is_whole: whether the object has the templates of all its pods, and none comes from another object.
    """

    kind: WorkloadKind
    root: Object
    namespace: str
    pod_sets: tuple[PodSet, ...]
    _: KW_ONLY
    operation: str = "CREATE"
    old: Object | None = None
    subresource: str = ""
    transition: Transition | None = None
    unopened: int = 0
    owner_doubt: OwnerDoubt | None = None
    parallel_jobs_are_gangs: bool = False
    gangs: int = field(init=False)
    is_whole: bool = field(init=False)
    _is_pod: bool = field(init=False)
    #: The first ownerReference of a controller, empty without one; None before it was looked for. No rule changes owners.
    _named_controller: Object | None = field(init=False, default=None)
    _gpu_pod_sets: list[PodSet] | None = field(init=False, default=None)
    #: The gang of these GPU pod sets and this declared size, for :func:`gpugate.policies.gangs.gang.pods_at_once`.
    known_gang: tuple[list[PodSet], int | None, Any] | None = field(init=False, default=None)
    #: Whether any of these GPU pod sets has a range of counts, for :func:`gpugate.policies.gangs.gang.is_elastic`.
    known_ranges: tuple[list[PodSet], bool] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.gangs = gangs_of(self.kind, self.root)
        self.is_whole = all(pods.is_whole for pods in self.pod_sets)
        self._is_pod = self.kind.is_pod

    def metadata(self) -> Object:
        """Return the object's metadata."""
        metadata = self.root.get("metadata")
        return metadata if type(metadata) is dict else mapping(self.root, "metadata", ())

    @property
    def name(self) -> str:
        """The object's name; empty if it has only a generateName."""
        return string(self.metadata(), "name", ("metadata",)) or ""

    def labels(self) -> Object:
        """Return the object's own labels."""
        metadata = self.root.get("metadata")
        labels = metadata.get("labels") if type(metadata) is dict else None
        return labels if type(labels) is dict else metadata_map(self.root, "labels")

    def annotations(self) -> Object:
        """Return the object's own annotations."""
        metadata = self.root.get("metadata")
        annotations = metadata.get("annotations") if type(metadata) is dict else None
        return annotations if type(annotations) is dict else metadata_map(self.root, "annotations")

    def annotation(self, key: str) -> str | None:
        """Return the object's annotation ``key``, or that of its only template; None if neither has it."""
        if self._is_pod and key not in self.annotations():
            return None
        return self._annotation(key, most=1)

    def agreed(self, key: str) -> str | None:
        """Return the object's annotation ``key``, or the equal one of all its templates; None if there is none."""
        if self._is_pod and key not in self.annotations():
            return None
        return self._annotation(key, most=len(self.pod_sets))

    def _annotation(self, key: str, most: int) -> str | None:
        value = self.annotations().get(key)
        if value is not None and type(value) is not str:
            value = string(self.annotations(), key, ("metadata", "annotations"))
        if value is None and not self._is_pod and 0 < len(self.pod_sets) <= most:
            values = {string(pods.annotations(), key, pods.meta("annotations")) for pods in self.pod_sets}
            value = values.pop() if len(values) == 1 else None
        return value

    def gpu_pod_sets(self) -> list[PodSet]:
        """Return the pod sets that request an accelerator and run on Linux."""
        if self._gpu_pod_sets is None:
            self._gpu_pod_sets = [pods for pods in self.pod_sets if pods.requests_gpu() and not pods.is_windows()]
        return self._gpu_pod_sets

    def templated_gpu_pod_sets(self) -> list[PodSet]:
        """Return the pod sets of :meth:`gpu_pod_sets` whose template is in this object."""
        return self.gpu_pod_sets() if self.is_whole else [pods for pods in self.gpu_pod_sets() if pods.is_whole]

    def is_pod(self) -> bool:
        """Whether the object is a pod itself."""
        return self._is_pod

    def controller(self) -> Object | None:
        """Return the ownerReference of the controller that created the object; None if there is none, or none can be true."""
        metadata = self.root.get("metadata")
        if type(metadata) is dict and "ownerReferences" not in metadata:
            return None
        if self._named_controller is None:
            owners = mappings(self.metadata(), "ownerReferences", ("metadata",))
            self._named_controller = next((owner for owner in owners if owner.get("controller") is True), {})
        owner = self._named_controller
        return None if not owner or (self.owner_doubt is not None and self.owner_doubt.rejects(owner)) else owner

    def owner_kind(self) -> WorkloadKind | None:
        """Return the kind of the controller that created the object; None if there is none, or gpugate does not know its kind."""
        owner = self.controller()
        return None if owner is None else kind_of(str(owner.get("apiVersion")), str(owner.get("kind")))

    def owner_was_reviewed(self) -> bool:
        """Whether the object is a pod from a reviewed template; its nodes may be gone since, and its controller only retries."""
        return self._is_pod and self.owner_kind() is not None

    def is_child(self) -> bool:
        """Whether the object is a part of a workload that was reviewed: the Job of a JobSet, but not of a CronJob."""
        owner = self.owner_kind()
        return owner is not None and not owner.scheduled

    def owner_path(self, pods: PodSet) -> Path:
        """Return the path of the object that creates ``pods``: this object, or a wrapped one."""
        wraps = self.kind.wraps
        return () if wraps is None else pods.path[: len(wraps) + 2]

    @property
    def is_batch(self) -> bool:
        """Whether it runs to completion; for a wrapper, whether all wrapped objects with accelerators do."""
        if self.kind.wraps is None:
            return self.kind.batch
        return all(pods.kind.batch for pods in self.gpu_pod_sets())

    def reported_path(self, path: Path) -> Path:
        """Return the path that a finding about ``path`` names: ``path``, or the object's own field for these pods."""
        for pods in self.pod_sets:
            if pods.resources_at is not None and path[: len(pods.path)] == pods.path:
                return pods.path_in_object(path) or pods.resources_at
        return path

    def edit_in_object(self, edit: Edit) -> Edit | None:
        """Return ``edit`` with the path of the object's own field; None if the created pods get the edit instead (TrainJob)."""
        for pods in self.pod_sets:
            if not pods.is_whole and edit.path[: len(pods.path)] == pods.path:
                path = pods.path_in_object(edit.path)
                return None if path is None else edit._replace(path=path)
        return edit

    def is_template(self) -> bool:
        """Whether edits reach the pods through a template, which another tool may own."""
        return not self._is_pod

    def refresh(self) -> None:
        """Drop all cached values."""
        self._gpu_pod_sets = None
        for pods in self.pod_sets:
            pods.refresh()

    def edited(self, edits: Sequence[Edit]) -> None:
        """Drop the cached values that these applied edits invalidate."""
        resources: list[Path] = []
        touched = False
        for edit in edits:
            effect = _effect_of(edit.path) if self.is_whole else _ALL
            if effect == _NONE:
                continue
            if effect == _ALL:
                self.refresh()
                return
            touched = True
            if effect == _OF_RESOURCES:
                resources.append(edit.path)
        if not touched:
            return
        if len(self.pod_sets) == 1:
            self.pod_sets[0].reload(resources)
            return
        depths = {len(pods.path) for pods in self.pod_sets}
        of_pods: dict[Path, list[Path]] = {}
        for path in resources:
            for depth in depths:
                of_pods.setdefault(path[:depth], []).append(path)
        for pods in self.pod_sets:
            pods.reload(of_pods.get(pods.path, ()))


@lru_cache(maxsize=1024)
def _effect_of(path: Path) -> int:
    if "resources" in path:
        return _ALL if "/" in str(path[-1]) else _OF_RESOURCES
    if not _LISTS.isdisjoint(path):
        return _OF_LISTS
    return _NONE if _SELECTING.isdisjoint(path) else _ALL
