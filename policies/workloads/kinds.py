"""The kinds that gpugate reads: where each keeps its pods, how many there are, and where others look for its queue.

Adding a kind is one entry in :data:`KINDS`. The webhook configurations are written from it, too.

Sources: Kueue v0.15.0 ``pkg/controller/jobs`` (pod sets, counts, suspension) and the API types of JobSet v0.10, LeaderWorkerSet
v0.7, Kubeflow's training operator v1.9, trainer v2.1 and MPI operator v0.7, KubeRay v1.5, Volcano v1.10, AppWrapper v1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpugate.policies.kube.fields import Path

#: The annotation by which a workload states how many pods must start together.
GANG_SIZE: Final = "gpugate.io/gang-size"
#: The annotation that names the group which plain pods belong to.
GANG_NAME: Final = "gpugate.io/gang-name"
#: The annotation (``"true"``) by which a gang says that it may run with fewer pods than its size.
GANG_ELASTIC: Final = "gpugate.io/gang-elastic"
#: The annotation that states the fewest pods that an elastic gang may run with.
GANG_MINIMUM: Final = "gpugate.io/gang-min-size"


@dataclass(frozen=True, slots=True)
class PodSetSpec:
    """Where a kind keeps one set of alike pods.

    In all paths a ``"*"`` stands for every key of a map or element of a list, the same one in each of them.

    Attributes:
        template: path of the object with the pods' ``metadata`` and ``spec``.
        counts: paths of numbers whose product is how many pods there are. The first is how many one child makes.
        default: what an absent number means; None where the object does not say how many there are.
        at_most: path of a number of pods in all, of which one child runs no more at once (a Job's completions).
        leader: path of a template from which one pod of each child is made in place of this one, where it is given.
        min_count: path of the number of pods that is enough to run.
        elastic: path of the switch without which ``fewest`` says nothing; None where it needs none.
        after: path of what tells that these pods start when others have run.
        resources: path of the resources of one container, where the kind keeps these alone and all else of its pods is made
            elsewhere. ``template`` is then the object that holds them.
        starts_late: whether the pods wait for the others themselves, so that a gang may start without them (MPI's launcher).
        unless: path of what says that these pods are none of the object's own, where it is given.
        role: the key of a map that the ``"*"`` stands for, in whatever case; empty for every key or element.
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


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadKind:
    """One kind of workload.

    Attributes:
        group: its API group, empty for the core group.
        kind: its name in manifests.
        resource: its plural name in URLs and RBAC rules.
        pod_sets: where it keeps its pods.
        versions: its API versions that the webhooks are sent.
        template_mutable: whether the API lets the pod template be changed after creation.
        framework: the name by which Kueue's Configuration knows the kind; empty where Kueue does not manage it.
        queue: path of the object whose labels Kueue reads the queue name from.
        batch: whether it runs to completion, so that several pods of it are one gang.
        owner_creates_once: whether an owner makes it and never states it again (a CronJob its Jobs, a JobSet its own).
        is_revision_of_owner: whether the controller that owns it knows it by a template equal to its own, and makes another where
            it finds none: the Deployment controller a ReplicaSet (``k8s.io/kubernetes`` ``pkg/controller/deployment/util``
            ``EqualIgnoreHash``). Such an object is let be; the pods made from it pass the door themselves.
        gangs: path of the number of gangs that it makes, each with an equal part of the pods; None for one.
        suspend: path of the switch that stops it as a whole.
        running: paths in the status of what is above zero, or ``Running``, while pods of it run.
        managed_by: path of the field that names the controller which runs it.
        wraps: path of the list whose elements' ``template`` are objects of other kinds.
        groups_itself: whether its own operator makes the pod groups that gang schedulers read.
    """

    group: str
    kind: str
    resource: str
    pod_sets: tuple[PodSetSpec, ...]
    versions: tuple[str, ...] = ("v1",)
    template_mutable: bool = True
    framework: str = ""
    queue: Path = ()
    batch: bool = False
    owner_creates_once: bool = False
    is_revision_of_owner: bool = False
    gangs: Path | None = None
    suspend: Path | None = None
    running: tuple[Path, ...] = ()
    managed_by: Path | None = None
    wraps: Path | None = None
    groups_itself: bool = False

    @property
    def queued(self) -> bool:
        """Whether Kueue can manage the kind."""
        return bool(self.framework)

    @property
    def counted_as_pods(self) -> bool:
        """Whether Kueue counts its pods as the API keeps them, and not the template as it is written."""
        return self.framework in {"deployment", "pod", "statefulset"}


def _job_at(*root: str) -> PodSetSpec:
    """The pods of a Job spec."""
    spec = (*root, "spec")
    return PodSetSpec((*spec, "template"), ((*spec, "parallelism"),), at_most=(*spec, "completions"))


_REPLICATED: Final = (PodSetSpec(("spec", "template"), (("spec", "replicas"),)),)

POD: Final = WorkloadKind("", "Pod", "pods", (PodSetSpec(()),), template_mutable=False, framework="pod")
JOB: Final = WorkloadKind(
    "batch",
    "Job",
    "jobs",
    (_job_at(),),
    template_mutable=False,
    framework="batch/job",
    batch=True,
    owner_creates_once=True,
    suspend=("spec", "suspend"),
    running=(("status", "active"), ("status", "ready")),
    managed_by=("spec", "managedBy"),
)
CRON_JOB: Final = WorkloadKind(
    "batch",
    "CronJob",
    "cronjobs",
    (_job_at("spec", "jobTemplate"),),
    framework="batch/job",
    queue=("spec", "jobTemplate"),
    batch=True,
    managed_by=("spec", "jobTemplate", "spec", "managedBy"),
)
DEPLOYMENT: Final = WorkloadKind(
    "apps", "Deployment", "deployments", _REPLICATED, framework="deployment", running=(("status", "readyReplicas"),)
)
STATEFUL_SET: Final = WorkloadKind(
    "apps", "StatefulSet", "statefulsets", _REPLICATED, framework="statefulset", running=(("status", "readyReplicas"),)
)
REPLICA_SET: Final = WorkloadKind(
    "apps", "ReplicaSet", "replicasets", _REPLICATED, is_revision_of_owner=True, running=(("status", "readyReplicas"),)
)
DAEMON_SET: Final = WorkloadKind("apps", "DaemonSet", "daemonsets", (PodSetSpec(("spec", "template"), default=None),))


#: Roles whose pods wait for the others themselves: MPI's launcher, and what evaluates checkpoints once there are some.
_LATE_ROLES: Final = frozenset({"Evaluator", "Launcher"})


def _kubeflow(kind: str, roles: str, *names: str, elastic: bool = False, workers: int = 1, **more: object) -> WorkloadKind:
    """A kind of Kubeflow's operators: its pods by role; ``workers``: how many there are where nothing says so."""
    fewest = ("spec", "elasticPolicy", "minReplicas") if elastic else None
    # The operator takes the names of roles in any case (``setTypeNameToCamelCase``).
    places = tuple(
        PodSetSpec(
            ("spec", roles, "*", "template"),
            (("spec", roles, "*", "replicas"),),
            default=workers if name == "Worker" else 1,
            min_count=fewest if name == "Worker" else None,
            starts_late=name in _LATE_ROLES,
            role=name,
        )
        for name in names
    )
    return WorkloadKind(
        "kubeflow.org",
        kind,
        f"{kind.lower()}s",
        places,
        framework=f"kubeflow.org/{kind.lower()}",
        batch=True,
        suspend=("spec", "runPolicy", "suspend"),
        running=(("status", "replicaStatuses", "*", "active"),),
        managed_by=("spec", "runPolicy", "managedBy"),
        groups_itself=True,
        **more,  # type: ignore[arg-type]
    )


PYTORCH_JOB: Final = _kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker", elastic=True)
TF_JOB: Final = _kubeflow("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator")
XGBOOST_JOB: Final = _kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker")
JAX_JOB: Final = _kubeflow("JAXJob", "jaxReplicaSpecs", "Worker")
PADDLE_JOB: Final = _kubeflow("PaddleJob", "paddleReplicaSpecs", "Master", "Worker", elastic=True)
MPI_JOB: Final = _kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker", workers=0, versions=("v1", "v2beta1"))

TRAIN_JOB: Final = WorkloadKind(
    "trainer.kubeflow.org",
    "TrainJob",
    "trainjobs",
    (
        PodSetSpec(
            ("spec", "trainer"),
            (("spec", "trainer", "numNodes"),),
            default=None,
            resources=("spec", "trainer", "resourcesPerNode"),
        ),
    ),
    versions=("v1alpha1",),
    template_mutable=False,
    framework="trainer.kubeflow.org/trainjob",
    batch=True,
    suspend=("spec", "suspend"),
    running=(("status", "jobsStatus", "*", "active"),),
    managed_by=("spec", "managedBy"),
    groups_itself=True,
)

_REPLICATED_JOB: Final = ("spec", "replicatedJobs", "*")
JOB_SET: Final = WorkloadKind(
    "jobset.x-k8s.io",
    "JobSet",
    "jobsets",
    (
        PodSetSpec(
            (*_REPLICATED_JOB, "template", "spec", "template"),
            ((*_REPLICATED_JOB, "template", "spec", "parallelism"), (*_REPLICATED_JOB, "replicas")),
            at_most=(*_REPLICATED_JOB, "template", "spec", "completions"),
            after=(*_REPLICATED_JOB, "dependsOn"),
        ),
    ),
    versions=("v1alpha2",),
    template_mutable=False,
    framework="jobset.x-k8s.io/jobset",
    batch=True,
    suspend=("spec", "suspend"),
    running=(("status", "replicatedJobsStatus", "*", "active"),),
    managed_by=("spec", "managedBy"),
)

_LEADER_WORKER: Final = ("spec", "leaderWorkerTemplate")
LEADER_WORKER_SET: Final = WorkloadKind(
    "leaderworkerset.x-k8s.io",
    "LeaderWorkerSet",
    "leaderworkersets",
    (
        PodSetSpec((*_LEADER_WORKER, "leaderTemplate"), (("spec", "replicas"),)),
        PodSetSpec(
            (*_LEADER_WORKER, "workerTemplate"),
            ((*_LEADER_WORKER, "size"), ("spec", "replicas")),
            leader=(*_LEADER_WORKER, "leaderTemplate"),
        ),
    ),
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    gangs=("spec", "replicas"),
    running=(("status", "readyReplicas"),),
)


def _ray_places(*root: str, unless: Path | None = None) -> tuple[PodSetSpec, ...]:
    """The head and the worker groups of a Ray cluster."""
    worker = (*root, "workerGroupSpecs", "*")
    return (
        PodSetSpec((*root, "headGroupSpec", "template"), unless=unless),
        PodSetSpec(
            (*worker, "template"),
            ((*worker, "replicas"), (*worker, "numOfHosts")),
            default=0,
            min_count=(*worker, "minReplicas"),
            elastic=(*root, "enableInTreeAutoscaling"),
            unless=unless,
        ),
    )


_AVAILABLE: Final = "availableWorkerReplicas"
RAY_CLUSTER: Final = WorkloadKind(
    "ray.io",
    "RayCluster",
    "rayclusters",
    _ray_places("spec"),
    framework="ray.io/raycluster",
    suspend=("spec", "suspend"),
    running=(("status", _AVAILABLE),),
    managed_by=("spec", "managedBy"),
    groups_itself=True,
)
RAY_JOB: Final = WorkloadKind(
    "ray.io",
    "RayJob",
    "rayjobs",
    (
        # A job for a cluster that is there makes none of its own.
        *_ray_places("spec", "rayClusterSpec", unless=("spec", "clusterSelector")),
        PodSetSpec(("spec", "submitterPodTemplate"), starts_late=True),
    ),
    framework="ray.io/rayjob",
    batch=True,
    suspend=("spec", "suspend"),
    running=(("status", "rayClusterStatus", _AVAILABLE),),
    managed_by=("spec", "managedBy"),
    groups_itself=True,
)
RAY_SERVICE: Final = WorkloadKind(
    "ray.io",
    "RayService",
    "rayservices",
    _ray_places("spec", "rayClusterConfig"),
    running=(("status", "activeServiceStatus", "rayClusterStatus", _AVAILABLE),),
    groups_itself=True,
)

_TASK: Final = ("spec", "tasks", "*")
VOLCANO_JOB: Final = WorkloadKind(
    "batch.volcano.sh",
    "Job",
    "jobs",
    (PodSetSpec((*_TASK, "template"), ((*_TASK, "replicas"),), default=0, after=(*_TASK, "dependsOn")),),
    versions=("v1alpha1",),
    template_mutable=False,
    batch=True,
    running=(("status", "running"),),
    groups_itself=True,
)
APP_WRAPPER: Final = WorkloadKind(
    "workload.codeflare.dev",
    "AppWrapper",
    "appwrappers",
    (),
    versions=("v1beta2",),
    template_mutable=False,
    framework="workload.codeflare.dev/appwrapper",
    suspend=("spec", "suspend"),
    running=(("status", "phase"),),
    managed_by=("spec", "managedBy"),
    wraps=("spec", "components"),
    groups_itself=True,
)

KINDS: Final[tuple[WorkloadKind, ...]] = (
    *(POD, JOB, CRON_JOB, DEPLOYMENT, STATEFUL_SET, REPLICA_SET, DAEMON_SET),
    *(PYTORCH_JOB, TF_JOB, XGBOOST_JOB, JAX_JOB, PADDLE_JOB, MPI_JOB, TRAIN_JOB),
    *(JOB_SET, LEADER_WORKER_SET, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, VOLCANO_JOB, APP_WRAPPER),
)

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> WorkloadKind | None:
    """The entry for an object's ``apiVersion`` and ``kind``, whatever the version; None for a kind not in the table."""
    group, _, _ = api_version.rpartition("/")
    return _BY_NAME.get((group, kind))
