"""The model of a workload kind. The entries are in the modules of this package.

``docs/develop/adding-a-kind.md`` lists the steps to add a kind. A new kind must state:

- ``group``, ``kind`` and ``resource``, and ``versions`` if the API serves another version than ``v1``;
- ``pod_sets``: one :class:`PodSetSpec` per field that holds a pod template, with the paths of the pod counts. A kind that wraps
  other objects states ``wraps`` instead;
- ``template_mutable=False`` if the API rejects changes of the pod template.

It should state, if it applies: ``batch``, ``suspend``, ``running``, ``managed_by`` with ``controller``, ``framework`` (then also
its name in ``QueuedKind`` of the package), ``groups_itself``, ``members`` (gang states need it) and ``pod_label``.

Every other field is an optional capability: a rule that needs it skips a kind without it. State a capability with its source: the
document or source file, and the version.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, lookup

#: The ``backoffLimit`` that the API gives a Job without one (``k8s.io/kubernetes`` 1.36 ``pkg/apis/batch/v1/defaults.go``).
API_BACKOFF_LIMIT: Final = 6


@dataclass(frozen=True, slots=True)
class PodSetSpec:
    """The fields of a kind for one set of equal pods.

    In all paths a ``"*"`` matches every key of a map or element of a list, with the same value in all paths of one spec.

    Attributes:
        template: path of the object with the pods' ``metadata`` and ``spec``.
        counts: paths of numbers whose product is the pod count. The first is the number of pods per child object.
        default: the pod count if the number is absent; None if the object sets no count.
        at_most: path of the total number of pods, which limits how many run at once in one child (a Job's completions).
        leader: path of a template that, if set, replaces this template for one pod of each child.
        min_count: path of the number of pods that is enough to run.
        elastic: path of the switch that enables ``min_count``; None if it needs no switch.
        after: path of a field that, if set, makes these pods start after other pods have run.
        resources: path of one container's resources, for a kind without a pod template; ``template`` is then their parent.
        starts_late: whether the pods wait for the other pods, so that a gang may start without them (MPI's launcher).
        unless: path of a field that, if set, means that another object provides these pods.
        role: the key of a map that the ``"*"`` matches, in any case; empty for every key or element.
    """

    template: Path
    counts: tuple[Path, ...] = ()
    default: int | None = 1
    at_most: Path | None = None
    leader: Path | None = None
    min_count: Path | None = None
    elastic: Path | None = None
    after: Path | None = None
    resources: Path | None = None
    starts_late: bool = False
    unless: Path | None = None
    role: str = ""


class RetryLimit(NamedTuple):
    """The field that limits how often a job is retried.

    Attributes:
        path: path of the limit.
        default: the limit if the field is absent; None for no limit.
        by_pod: whether each failed pod counts, and not the job as a whole.
        zero_is_default: whether the API replaces a stated 0 by the default.
        first: how many of the limit the first run uses.
        unless: path of a field that, if set, replaces this limit.
    """

    path: Path
    default: int | None
    by_pod: bool
    zero_is_default: bool = False
    first: int = 0
    unless: Path | None = None


class Deadline(NamedTuple):
    """The field that limits the run time of a job in seconds, in each child Job if its path has a ``"*"``.

    If not every version of the API has the field (``always_served``), it is read, but never written or required.
    """

    path: Path
    always_served: bool = True


class TimeToLive(NamedTuple):
    """The field for the deletion of a finished job, in seconds after its end.

    ``deletes_object_in`` are the API versions that delete the object itself (empty: all); the others delete a child.
    """

    path: Path
    deletes_object_in: tuple[str, ...] = ()


class HeldAfterEnd(NamedTuple):
    """Pods that keep running after a job has ended, unless a field stops them.

    Attributes:
        paths: alternative paths of the field; gpugate writes the first.
        value: the value that stops the pods, which gpugate writes.
        held_by: values of the field that keep the pods running; so does an absent field.
        what: the pods, in words.
        unless: path of a field that, if set, replaces this one.
        role: the role whose pods are held; empty for all pods.
    """

    paths: tuple[Path, ...]
    value: str | bool
    held_by: tuple[str | bool, ...]
    what: str
    unless: Path | None = None
    role: str = ""


class MinAvailable(NamedTuple):
    """The field for the number of pods of all pod sets that is enough to start; the API may treat a 0 as absent."""

    path: Path
    zero_is_absent: bool = False


class Members(NamedTuple):
    """The relation of the pods of a namespace to their workload.

    Attributes:
        label: the pod label with the workload's name; empty if the workload is the controller of the pods.
        kind: the kind of the object whose name is in the label.
        name: path of that name in the object.
        index_label: the pod label with the index of the gang, for a kind with several gangs; empty for one gang.
    """

    label: str = ""
    kind: str = ""
    name: Path = ("metadata", "name")
    index_label: str = ""

    def key(self, name: object, index: object | None = None) -> str:
        """Return the owner group of the pods of workload ``name``, or of its gang ``index``."""
        return f"{self.kind}/{name}" if index is None else f"{self.kind}/{name}/{index}"


class RayClusterSpec(NamedTuple):
    """The fields of a Ray cluster in a kind that Kueue manages.

    Attributes:
        path: path of the spec.
        existing: path of the selector of an existing cluster; None if the kind always creates one.
        shutdown: path of the switch that deletes the cluster when the job has ended; None if it is the cluster itself.
    """

    path: Path
    existing: Path | None = None
    shutdown: Path | None = None


class Recovery(Enum):
    """The mechanism that restarts the pods of a kind after the loss of a node."""

    BACKOFF = auto()
    """The Job controller; each failed pod counts against ``backoffLimit``."""
    ROLE = auto()
    """The ``restartPolicy`` of the pod's role."""
    LAUNCHER = auto()
    """The restart of the launcher, which ends with the first lost worker."""
    POLICIES = auto()
    """The event policies of the pod's task and of the job."""
    NEW_CLUSTER = auto()
    """A new Ray cluster, after the loss of the head."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadKind:
    """A kind of workload.

    All paths start at the object. A ``"*"`` in a path of a capability matches as in the ``template`` of the same pod set.

    Attributes:
        group: the API group, empty for the core group.
        kind: the name in manifests.
        resource: the plural name in URLs and RBAC rules.
        pod_sets: its sets of equal pods.
        versions: the API versions that the webhooks receive, the newest last.

        template_mutable: whether the API accepts changes of the pod template.
        immutable: fields below ``spec``, besides the template, whose changes the API rejects.
        batch: whether it runs to completion.
        gangs: path of the number of its gangs, each with an equal part of the pods; None for one.
        wraps: path of a list whose elements hold objects of other kinds in ``template``.
        per_node: whether it runs one pod on every node that it selects.
        one_by_one: whether its controller starts and replaces independent pods one by one.
        scheduled: whether it creates jobs on a schedule: it has no pods itself, and each job is another workload.
        serving: whether it serves requests (inference) instead of running to completion.
        only_trains: whether it is for training alone and has pod templates, so resources belong into them.
        shares_model: whether its pods may share one copy of a model although they are no gang.

        owner_creates_once: whether an owner creates it and never updates it (a CronJob or JobSet its Jobs).
        is_revision_of_owner: whether its owner finds it by an equal template and creates another otherwise: the Deployment
            controller a ReplicaSet (``k8s.io/kubernetes`` ``pkg/controller/deployment/util`` ``EqualIgnoreHash``). gpugate does
            not edit such an object, and reviews its pods instead.
        creates: the resource of the objects that its controller creates, as a ResourceQuota counts them; empty if it counts none.
        default_restart_policy: the default of its API for the pods' restart policy, if it is not ``Always``; empty otherwise.
        controller: the name of its controller in the field at ``managed_by``.
        managed_by: path of the field with the name of the controller that runs it.
        suspend: path of the switch that stops all its pods.
        running: paths in the status of values above zero, or ``Running``, while its pods run.
        reports_start: whether ``status.startTime`` is the start of its pods; before that they hold nothing.

        members: the relation of pods to it; None if its pods cannot be told apart from other pods.
        pod_label: the label with the object's name that its controller sets on exactly the pods of one run; empty if none.
        template_labels: labels with the object's name that the API writes into the template.
        selector: path of the label selector of its pods.
        revision_label: for a kind whose replicas serve one by one, the label that distinguishes the pods of its revisions; empty
            if it has one revision, None for every other kind.

        job_spec: path of the batch/v1 Job spec around each template.
        retry: the limit of retries.
        deadline: the limit of the run time.
        ttl: the field that deletes it after its end.
        held_after_end: pods that keep running after its end.
        recovery: the mechanism that restarts its pods after the loss of a node; None if they are always re-created.
        volumes: path of volumes that its controller mounts in every container, with ``mountPath`` and ``volumeClaimName``.
        claim_templates: path of the volumeClaimTemplates.

        groups_itself: whether its operator creates the pod groups that gang schedulers read.
        grouped_by_kai: whether KAI puts all of its pods into one pod group.
        min_available: the field for the number of pods that is enough to start.
        priority_class: path of one priority class for all of its pods.
        topology: path of the field by which its scheduler places the pods close together.
        exclusive_topology: the annotation for a topology domain per child object; empty if none.

        framework: the name of the kind in Kueue's Configuration; empty if Kueue does not manage it.
        queue: path of the object with the queue-name label that Kueue reads.
        queued_as: the kind whose integration queues its pods; empty if it has one of its own.
        counted_as_pods: whether Kueue counts its pods as the API stores them, and not the template as written.
        admitted_by_pod: whether Kueue creates a Workload for each of its pods.
        partial_admission: whether Kueue may admit it with fewer pods than its parallelism.
        ray_cluster: the Ray cluster that Kueue's webhooks check.
    """

    group: str
    kind: str
    resource: str
    pod_sets: tuple[PodSetSpec, ...]
    versions: tuple[str, ...] = ("v1",)
    template_mutable: bool = True
    immutable: tuple[str, ...] = ()
    batch: bool = False
    gangs: Path | None = None
    wraps: Path | None = None
    per_node: bool = False
    one_by_one: bool = False
    scheduled: bool = False
    serving: bool = False
    only_trains: bool = False
    shares_model: bool = False
    owner_creates_once: bool = False
    is_revision_of_owner: bool = False
    creates: str = ""
    default_restart_policy: str = ""
    controller: str = ""
    managed_by: Path | None = None
    suspend: Path | None = None
    running: tuple[Path, ...] = ()
    reports_start: bool = False
    members: Members | None = None
    pod_label: str = ""
    template_labels: tuple[str, ...] = ()
    selector: Path | None = None
    revision_label: str | None = None
    job_spec: Path | None = None
    retry: RetryLimit | None = None
    deadline: Deadline | None = None
    ttl: TimeToLive | None = None
    held_after_end: HeldAfterEnd | None = None
    recovery: Recovery | None = None
    volumes: Path | None = None
    claim_templates: Path | None = None
    groups_itself: bool = False
    grouped_by_kai: bool = True
    min_available: MinAvailable | None = None
    priority_class: Path | None = None
    topology: Path | None = None
    exclusive_topology: str = ""
    framework: str = ""
    queue: Path = ()
    queued_as: str = ""
    counted_as_pods: bool = False
    admitted_by_pod: bool = False
    partial_admission: bool = False
    ray_cluster: RayClusterSpec | None = None

    @property
    def queued(self) -> bool:
        """Whether Kueue can manage the kind."""
        return bool(self.framework)

    def is_suspended(self, root: Object) -> bool:
        """Whether ``root``, an object of the kind, is suspended."""
        return self.suspend is not None and lookup(root, self.suspend) is True

    @property
    def full_resource(self) -> str:
        """The plural name with the group, as kubectl accepts it: ``jobs.batch``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def is_pod(self) -> bool:
        """Whether an object of the kind is itself a pod."""
        return not self.group and self.resource == "pods"

    @property
    def is_built_in(self) -> bool:
        """Whether Kubernetes itself has the kind: the groups of its workloads have no dot."""
        return "." not in self.group

    @property
    def starts_together(self) -> bool:
        """Whether its pods are one gang, or several: those of Kubernetes' own Jobs may start one by one."""
        return self.gangs is not None or (self.batch and not self.is_built_in)

    @property
    def has_child_jobs(self) -> bool:
        """Whether it creates a Job from each of several templates."""
        return self.job_spec is not None and "*" in self.job_spec
