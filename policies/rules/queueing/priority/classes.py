"""Parameters of the rule `priority`, the purpose of a workload, its priority classes, and the highest that it may use."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from gpugate.policies.cluster.records.kueue import PriorityClass
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import LONGEST_LABEL, CelRule, LabelKey
from gpugate.policies.kube.fields import Path, lookup, string, whole_number
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
#: A PriorityClass: a DNS subdomain.
ClassName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=_NAME)]
#: A WorkloadPriorityClass, which a label names.
WorkloadClassName: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=_NAME)]
#: Prefix of the classes of the cluster's own components (``k8s.io/api/scheduling/v1``, 1.36).
SYSTEM: Final = "system-"
_SYSTEM_PROBLEM: Final = f"{SYSTEM}* classes are for the cluster's own components"
#: The most classes that a message lists.
_SHOWN: Final = 8

Purpose: TypeAlias = Literal["training", "inference", "interactive"]
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
#: The annotation that states the purpose of a workload.
WORKLOAD_KIND: Final = "gpugate.io/workload-kind"
#: Owners of interactive pods, by API group and kind: workspaces of other groups serve (KAITO).
_WORKSPACES: Final = frozenset(
    {("kubeflow.org", "Notebook"), ("kubeflow.org", "Workspace"), ("workspace.devfile.io", "DevWorkspace")}
)
#: Labels of such pods: Kubeflow's notebook controller, JupyterHub's KubeSpawner, the DevWorkspace operator.
_WORKSPACE_LABELS: Final = frozenset({"controller.devfile.io/devworkspace_id", "hub.jupyter.org/username", "notebook-name"})
_SINGLE_USER: Final = ("component", "singleuser-server")


class ClassesParam(Params):
    """The classes of workloads of one kind."""

    validations = (CelRule(f"!has(self.pods) || !self.pods.startsWith('{SYSTEM}')", f"pods: {_SYSTEM_PROBLEM}"),)

    pods: ClassName | None = None
    """PriorityClass of the pods."""
    workload: WorkloadClassName | None = None
    """WorkloadPriorityClass of Kueue."""

    @field_validator("pods")
    @classmethod
    def _is_no_system_class(cls, name: str | None) -> str | None:
        if name is not None and name.startswith(SYSTEM):
            message = f"{name:.60}: {_SYSTEM_PROBLEM}"
            raise ValueError(message)
        return name


class PriorityCap(Params):
    """The highest priority that workloads may use: a class, or a value."""

    validations = (CelRule("has(self.name) != has(self.value)", "give a name or a value, and not both"),)

    name: ClassName | None = None
    """The highest class."""
    value: Annotated[int, Field(ge=-2_147_483_648, le=2_147_483_647)] | None = None
    """The highest value of a class."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.name is None) == (self.value is None):
            message = "give a name or a value, and not both"
            raise ValueError(message)
        return self


class PriorityParams(Params):
    """Parameters of `priority`."""

    training: ClassesParam = ClassesParam()
    """Classes of workloads that run to completion."""
    inference: ClassesParam = ClassesParam()
    """Classes of workloads that serve."""
    interactive: ClassesParam = ClassesParam()
    """Classes of workloads with a user in front of them."""
    required: bool = False
    """Whether a workload is refused that has no class, neither for its pods nor for Kueue."""
    highest: PriorityCap | None = None
    """The highest PriorityClass of namespaces that state none."""
    highest_workload: PriorityCap | None = None
    """The highest WorkloadPriorityClass of namespaces that state none."""
    highest_key: LabelKey = "gpugate.io/highest-priority"
    """Label or annotation of a namespace that states its highest PriorityClass."""
    highest_workload_key: LabelKey = "gpugate.io/highest-workload-priority"
    """Label or annotation of a namespace that states its highest WorkloadPriorityClass."""


class PriorityLimit(NamedTuple):
    """The highest value that a workload may use; ``value`` is None if its class is unknown, ``text`` names its origin."""

    value: int | None
    text: str


class PriorityClasses(NamedTuple):
    """The PriorityClasses or WorkloadPriorityClasses of the cluster, for one workload.

    Attributes:
        title: the kind.
        resource: its plural name.
        by_name: the classes by name.
        state: the sync state of the kind.
        limit: the highest that the workload may use; None for no limit.
    """

    title: str
    resource: str
    by_name: Mapping[str, PriorityClass]
    state: SyncState
    limit: PriorityLimit | None

    def shown(self, *, limited: bool = True) -> str:
        """Return the classes that workloads may name, the highest first; ``limited``: none above the limit."""
        most = self.limit.value if limited and self.limit is not None else None
        usable = [
            priority
            for priority in self.by_name.values()
            if not priority.name.startswith(SYSTEM) and (most is None or priority.value <= most)
        ]
        highest_first = sorted(usable, key=lambda priority: (-priority.value, priority.name))
        return ", ".join(f"{priority.name} ({priority.value})" for priority in highest_first[:_SHOWN]) or "none"

    def excess(self, name: str | None) -> int:
        """Return by how much the class is above the limit; zero if it is not, or if its value or the limit is unknown."""
        priority = self.by_name.get(name or "")
        if priority is None or self.limit is None or self.limit.value is None:
            return 0
        return max(0, priority.value - self.limit.value)


def pod_classes(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> PriorityClasses:
    """Return the PriorityClasses, with the highest that the workload may use."""
    limit = _limit_of(workload, snapshot, params.highest_key, params.highest, snapshot.priorities)
    resource = "priorityclasses"
    return PriorityClasses("PriorityClass", resource, snapshot.priorities, snapshot.sync_state(resource), limit)


def workload_classes(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> PriorityClasses:
    """Return Kueue's WorkloadPriorityClasses, with the highest that the workload may use."""
    by_name = snapshot.workload_priorities
    limit = _limit_of(workload, snapshot, params.highest_workload_key, params.highest_workload, by_name)
    resource = "workloadpriorityclasses"
    return PriorityClasses("WorkloadPriorityClass", resource, by_name, snapshot.sync_state(resource), limit)


def _limit_of(
    workload: Workload, snapshot: ClusterSnapshot, key: str, cap: PriorityCap | None, by_name: Mapping[str, PriorityClass]
) -> PriorityLimit | None:
    stated, subject = snapshot.namespace_says(workload.namespace, (key,)), f"namespace {workload.namespace} may use"
    if stated is None:
        if cap is None:
            return None
        stated, subject = cap.name or str(cap.value), "the policy allows"
    priority = by_name.get(stated)
    value = None if priority is None else priority.value
    if whole_number(stated.removeprefix("-"), 10) is not None:
        value = int(stated)
    return PriorityLimit(value, f"{subject} at most {stated}")


class NamedClass(NamedTuple):
    """A class that a workload names, and its path."""

    path: Path
    name: str


def class_for_all(workload: Workload) -> NamedClass | None:
    """Return the class that the object itself names for all its pods."""
    path = workload.kind.priority_class
    return None if path is None else _named_at(workload, path)


def _named_at(workload: Workload, path: Path) -> NamedClass | None:
    parent = lookup(workload.root, path[:-1])
    name = string(parent, str(path[-1]), path[:-1]) if type(parent) is dict else None
    return NamedClass(path, name) if name else None


def class_of(pods: PodSet) -> NamedClass | None:
    """Return the class that the pods name."""
    name = pods.spec.get("priorityClassName")
    if not name:
        return None
    path = pods.field("priorityClassName")
    return NamedClass(path, name if type(name) is str else string(pods.spec, "priorityClassName", pods.field()) or "")


def classes_of(workload: Workload) -> Iterator[NamedClass]:
    """Yield every PriorityClass that the workload names."""
    named = (class_for_all(workload), *(class_of(pods) for pods in workload.pod_sets if pods.is_whole))
    return (item for item in named if item is not None)


def workload_class_path(workload: Workload) -> Path | None:
    """Return the path of the WorkloadPriorityClass; None if Kueue does not manage the object, or a controller made it."""
    if not workload.kind.queued or workload.controller() is not None:
        return None
    return (*workload.kind.queue, "metadata", "labels", PRIORITY_CLASS)


def workload_class_of(workload: Workload) -> NamedClass | None:
    """Return the WorkloadPriorityClass that the object names."""
    path = workload_class_path(workload)
    return None if path is None else _named_at(workload, path)


def classes_for(workload: Workload, params: PriorityParams) -> ClassesParam | None:
    """Return the policy's classes for the purpose of the workload; None if the purpose is unknown."""
    purpose = purpose_of(workload)
    classes: ClassesParam | None = None if purpose is None else getattr(params, purpose)
    return classes


def stated_purpose(workload: Workload) -> str | None:
    """Return the purpose that the workload, or all its templates, state; it may be invalid."""
    return workload.agreed(WORKLOAD_KIND)


def purpose_of(workload: Workload) -> Purpose | None:
    """Return the stated purpose, else that of the kind, owner and pods; None if it is unknown."""
    stated: Any = stated_purpose(workload)
    if stated is not None:
        return stated if stated in PURPOSES else None
    if _is_workspace(workload):
        return "interactive"
    if workload.is_pod():
        return _purpose_of_pod(workload.pod_sets[0])
    kinds = [workload.kind] if workload.kind.wraps is None else [pods.kind for pods in workload.gpu_pod_sets()]
    if all(kind.serving for kind in kinds):
        return "inference"
    return "training" if all(kind.batch for kind in kinds) else None


def _is_workspace(workload: Workload) -> bool:
    owner = workload.controller()
    if owner is not None and (str(owner.get("apiVersion")).partition("/")[0], str(owner.get("kind"))) in _WORKSPACES:
        return True
    all_labels = [workload.labels(), *(pods.labels() for pods in workload.pod_sets if not workload.is_pod())]
    key, value = _SINGLE_USER
    return any(not _WORKSPACE_LABELS.isdisjoint(labels) or labels.get(key) == value for labels in all_labels)


def _purpose_of_pod(pods: PodSet) -> Purpose | None:
    """Return the purpose of a bare pod: interactive with a terminal, training if it ends."""
    if any(container.spec.get("tty") is True or container.spec.get("stdin") is True for container in pods.containers):
        return "interactive"
    return "training" if str(pods.spec.get("restartPolicy")) in {"Never", "OnFailure"} else None
