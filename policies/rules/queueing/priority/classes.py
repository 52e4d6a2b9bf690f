"""Priority classes: which a workload names, what they are worth, and the highest that its namespace may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple, Self, TypeAlias

from pydantic import Field, model_validator

from gpugate.policies.cluster.records.kueue import PriorityClass
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import LONGEST_LABEL, CelRule
from gpugate.policies.kube.fields import Path, lookup, string, whole_number
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
#: A PriorityClass: a DNS subdomain.
ClassName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=_NAME)]
#: A WorkloadPriorityClass, which a label names.
WorkloadClassName: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=_NAME)]
#: How the apiserver calls the classes of the cluster's own parts (``k8s.io/api/scheduling/v1``, 1.36).
SYSTEM: Final = "system-"
#: Classes shown in a message.
_SHOWN: Final = 8


class PriorityCap(Params):
    """The highest priority that may be used: a class, or a value."""

    validations = (CelRule("has(self.name) != has(self.value)", "give a name or a value, and not both"),)

    name: ClassName | None = None
    """The class that may be used, and all below it."""
    value: Annotated[int, Field(ge=-2_147_483_648, le=2_147_483_647)] | None = None
    """The value up to which classes may be used."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.name is None) == (self.value is None):
            message = "give a name or a value, and not both"
            raise ValueError(message)
        return self


class PriorityClasses(NamedTuple):
    """Classes of one kind; those of pods and those of Kueue's Workloads are compared among themselves alone.

    Attributes:
        title: what a class of it is called.
        resource: its plural name.
        classes: the classes by name.
        known: how far they are known.
    """

    title: str
    resource: str
    classes: Mapping[str, PriorityClass]
    known: SyncState

    def lists(self, most: int | None = None) -> str:
        """The classes that workloads may name, the highest first, none of the system's and none above ``most``."""
        usable = [one for one in self.classes.values() if not one.name.startswith(SYSTEM) and (most is None or one.value <= most)]
        shown = sorted(usable, key=lambda one: (-one.value, one.name))[:_SHOWN]
        return ", ".join(f"{one.name} ({one.value})" for one in shown) or "none"

    def excess(self, name: str, bound: PriorityBound | None) -> int:
        """By how much the class is above what may be used; zero where it is not, or where one of the two is not known."""
        found = self.classes.get(name)
        if found is None or bound is None or bound.value is None:
            return 0
        return max(0, found.value - bound.value)


class PriorityBound(NamedTuple):
    """The highest value that may be used.

    Attributes:
        value: the value; None where it is not known what is meant.
        words: who says so.
    """

    value: int | None
    words: str


def scale_of_pods(snapshot: ClusterSnapshot) -> PriorityClasses:
    """PriorityClasses."""
    return PriorityClasses("PriorityClass", "priorityclasses", snapshot.priorities, snapshot.sync_state("priorityclasses"))


def scale_of_workloads(snapshot: ClusterSnapshot) -> PriorityClasses:
    """Kueue's WorkloadPriorityClasses."""
    resource = "workloadpriorityclasses"
    return PriorityClasses("WorkloadPriorityClass", resource, snapshot.workload_priorities, snapshot.sync_state(resource))


def bound_of(
    scale: PriorityClasses, stated: PriorityCap | None, key: str, workload: Workload, snapshot: ClusterSnapshot
) -> PriorityBound | None:
    """What the namespace says under ``key``, else what the policy states; None where nobody bounds anything."""
    said = snapshot.namespace_says(workload.namespace, (key,))
    if said is not None:
        words = f"namespace {workload.namespace} may use {said} at most"
        return PriorityBound(_value_of(said, scale), words)
    if stated is None:
        return None
    shown = stated.name or str(stated.value)
    return PriorityBound(_value_of(shown, scale), f"the policy allows {shown} at most")


def _value_of(said: str, scale: PriorityClasses) -> int | None:
    if whole_number(said.removeprefix("-"), 10) is not None:
        return int(said)
    found = scale.classes.get(said)
    return None if found is None else found.value


class Named(NamedTuple):
    """A class that a workload names, and where."""

    path: Path
    name: str


def class_for_all(workload: Workload) -> Named | None:
    """The class that the object itself states for all of its pods."""
    path = workload.kind.priority_class
    if path is None:
        return None
    parent = lookup(workload.root, path[:-1])
    name = string(parent, str(path[-1]), path[:-1]) if type(parent) is dict else None
    return Named(path, name) if name else None


def class_of(pods: PodSet) -> Named | None:
    """The class that the pods name."""
    name = pods.spec.get("priorityClassName")
    if not name:
        return None
    path = pods.field("priorityClassName")
    return Named(path, name if type(name) is str else string(pods.spec, "priorityClassName", pods.field()) or "")


def classes_of(workload: Workload) -> Iterator[Named]:
    """Every PriorityClass that the workload names."""
    found: Iterable[Named | None] = (class_for_all(workload), *(class_of(pods) for pods in workload.pod_sets if pods.is_whole))
    return (one for one in found if one is not None)


def workload_class_path(workload: Workload) -> Path | None:
    """Where Kueue reads the WorkloadPriorityClass; None for what it does not manage, or what another object has made."""
    if not workload.kind.queued or workload.controller() is not None:
        return None
    return (*workload.kind.queue, "metadata", "labels", PRIORITY_CLASS)


def workload_class_of(workload: Workload) -> Named | None:
    """The WorkloadPriorityClass that the object names."""
    path = workload_class_path(workload)
    if path is None:
        return None
    labels = lookup(workload.root, path[:-1])
    name = string(labels, PRIORITY_CLASS, path[:-1]) if type(labels) is dict else None
    return Named(path, name) if name else None
