"""What a workload is for: training, inference, or somebody who sits before it."""

from typing import Any, Final, Literal, TypeAlias, get_args

from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

Purpose: TypeAlias = Literal["training", "inference", "interactive"]
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
#: The annotation by which a workload says what it is for.
WORKLOAD_KIND: Final = "gpugate.io/workload-kind"

#: Owners that make somebody's workplace, by API group and kind: other groups have workspaces that serve (KAITO).
_WORKPLACES: Final = frozenset(
    {("kubeflow.org", "Notebook"), ("kubeflow.org", "Workspace"), ("workspace.devfile.io", "DevWorkspace")}
)
#: Labels of such pods: Kubeflow's notebook controller, JupyterHub's KubeSpawner, the DevWorkspace operator.
_WORKPLACE_LABELS: Final = frozenset({"controller.devfile.io/devworkspace_id", "hub.jupyter.org/username", "notebook-name"})
_SINGLE_USER: Final = ("component", "singleuser-server")


def stated_purpose(workload: Workload) -> str | None:
    """What the workload, or all its templates, say that it is for, rightly or not."""
    return workload.agreed(WORKLOAD_KIND)


def purpose_of(workload: Workload) -> Purpose | None:
    """What the workload is for: as it says itself, else as its kind, its owner and its pods show; None where nothing does."""
    stated: Any = stated_purpose(workload)
    if stated is not None:
        return stated if stated in PURPOSES else None
    if _is_workplace(workload):
        return "interactive"
    if workload.is_pod():
        return _purpose_of_pod(workload.pod_sets[0])
    made_by = [workload.kind] if workload.kind.wraps is None else [pods.kind for pods in workload.gpu_pod_sets()]
    if all(kind.serving for kind in made_by):
        return "inference"
    return "training" if all(kind.batch for kind in made_by) else None


def _is_workplace(workload: Workload) -> bool:
    owner = workload.controller()
    if owner is not None and (str(owner.get("apiVersion")).partition("/")[0], str(owner.get("kind"))) in _WORKPLACES:
        return True
    labels = [workload.labels(), *(pods.labels() for pods in workload.pod_sets if not workload.is_pod())]
    return any(not _WORKPLACE_LABELS.isdisjoint(one) or one.get(_SINGLE_USER[0]) == _SINGLE_USER[1] for one in labels)


def _purpose_of_pod(pods: PodSet) -> Purpose | None:
    """A pod that nobody else speaks for: with a terminal it is somebody's, and one that ends is work that ends."""
    if any(one.spec.get("tty") is True or one.spec.get("stdin") is True for one in pods.containers):
        return "interactive"
    return "training" if str(pods.spec.get("restartPolicy")) in {"Never", "OnFailure"} else None
