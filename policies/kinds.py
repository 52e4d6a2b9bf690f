"""The kinds that gpugate reads: where each keeps its pods, and where others look for its queue.

Adding a kind is one entry in :data:`KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpugate.policies.fields import Path

#: The annotation by which a workload states how many pods must start together.
GANG_SIZE: Final = "gpugate.io/gang-size"
#: The annotation that names the group which plain pods belong to.
GANG_NAME: Final = "gpugate.io/gang-name"
#: The annotation (``"true"``) by which a gang says that it may run with fewer pods than its size.
GANG_ELASTIC: Final = "gpugate.io/gang-elastic"
#: The annotation that states the fewest pods that an elastic gang may run with.
GANG_MINIMUM: Final = "gpugate.io/gang-min-size"


@dataclass(frozen=True, slots=True)
class PodSetPlace:
    """Where a kind keeps one set of alike pods.

    Attributes:
        template: path of the object with the pods' ``metadata`` and ``spec``; ``"*"`` stands for
            every key of a map or element of a list.
        count: path of the number of pods, in which a ``"*"`` means the same key; None where the
            number is not in the object (a DaemonSet's).
        default_count: how many pods an absent number means.
    """

    template: Path
    count: Path | None = None
    default_count: int = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of workload.

    Attributes:
        group: its API group, empty for the core group.
        kind: its name in manifests.
        resource: its plural name in URLs and RBAC rules.
        pod_sets: where it keeps its pods.
        template_mutable: whether the API lets the pod template be changed after creation.
        queue: path of the object whose labels Kueue reads the queue name from; None where Kueue
            does not manage the kind (facts: Kueue v0.15.0, ``pkg/controller/jobs``).
        batch: whether it runs to completion, so that several pods of it are one gang.
        makes: the kind that its controller makes, which passes the door itself.
        mirrors_owner: whether the controller that owns it knows it by a template equal to its own, and makes another where
            it finds none: the Deployment controller a ReplicaSet (``k8s.io/kubernetes`` ``pkg/controller/deployment/util``
            ``EqualIgnoreHash``). Such an object is let be; the pods made from it pass the door themselves.
    """

    group: str
    kind: str
    resource: str
    pod_sets: tuple[PodSetPlace, ...]
    template_mutable: bool = True
    queue: Path | None = None
    batch: bool = False
    makes: str = "Pod"
    mirrors_owner: bool = False


_REPLICATED: Final = (PodSetPlace(("spec", "template"), ("spec", "replicas")),)

KINDS: Final[tuple[Kind, ...]] = (
    Kind("", "Pod", "pods", (PodSetPlace(()),), template_mutable=False, queue=()),
    Kind(
        "batch",
        "Job",
        "jobs",
        (PodSetPlace(("spec", "template"), ("spec", "parallelism")),),
        template_mutable=False,
        queue=(),
        batch=True,
    ),
    Kind(
        "batch",
        "CronJob",
        "cronjobs",
        (PodSetPlace(("spec", "jobTemplate", "spec", "template"), ("spec", "jobTemplate", "spec", "parallelism")),),
        queue=("spec", "jobTemplate"),
        batch=True,
        makes="Job",
    ),
    Kind("apps", "Deployment", "deployments", _REPLICATED, queue=(), makes="ReplicaSet"),
    Kind("apps", "StatefulSet", "statefulsets", _REPLICATED, queue=()),
    Kind("apps", "ReplicaSet", "replicasets", _REPLICATED, mirrors_owner=True),
    Kind("apps", "DaemonSet", "daemonsets", (PodSetPlace(("spec", "template")),)),
)

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> Kind | None:
    """The entry for an object's ``apiVersion`` and ``kind``, whatever the version; None for a kind not in the table."""
    group, _, _ = api_version.rpartition("/")
    return _BY_NAME.get((group, kind))
