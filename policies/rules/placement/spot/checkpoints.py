"""Decide whether the checkpoints of a workload outlive its pods and their nodes."""

import re
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, lookup, mappings, sequence
from gpugate.policies.workloads.container import Container, normal_path
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: The annotation of replicas that have no work to lose.
NO_CHECKPOINT: Final = "none"
#: Schemes of object stores and network file systems, as frameworks and ``fsspec`` write them.
_STORES: Final = frozenset(
    [
        *("s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs", "oss", "cos", "cosn"),
        *("obs", "oci", "r2", "b2", "swift", "hdfs", "webhdfs", "https", "mlflow", "wandb", "hf"),
    ]
)
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://[^\s/]\S*", re.ASCII)
_CLAIM: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_LONGEST: Final = 1024
#: Volumes that do not keep a checkpoint, and why.
_LOST: Final = {
    "emptyDir": "an emptyDir is deleted with the pod",
    "ephemeral": "the claim of an ephemeral volume is deleted with the pod",
    "hostPath": "a hostPath is lost with the node",
    "gitRepo": "a gitRepo is deleted with the pod",
    "configMap": "a configMap is read-only",
    "secret": "a secret is read-only",
    "downwardAPI": "a downwardAPI volume is read-only",
    "projected": "a projected volume is read-only",
    "image": "an image volume is read-only",
}


class Loss(NamedTuple):
    """Why a checkpoint is lost: the field, and the reason in words."""

    path: Path
    why: str


def is_readable(checkpoint: str) -> bool:
    """Return whether ``checkpoint`` is a path, the URL of an object store, the name of a claim, or ``none``."""
    if len(checkpoint) > _LONGEST:
        return False
    url = _URL.fullmatch(checkpoint)
    if url is not None:
        return url[1] in _STORES
    return (checkpoint.startswith("/") and normal_path(checkpoint) != "//") or _CLAIM.fullmatch(checkpoint) is not None


def loss_of(workload: Workload, pods: PodSet, checkpoint: str, path: Path) -> Loss | None:
    """Return why ``checkpoint`` does not outlive the pods; None if it does.

    Args:
        workload: the workload.
        pods: the pods that are interrupted.
        checkpoint: a checkpoint that :func:`is_readable`.
        path: the path of the annotation.
    """
    if checkpoint == NO_CHECKPOINT or _URL.fullmatch(checkpoint) is not None:
        return None
    losses = [_loss_in(workload, pods, container, checkpoint, path) for container in pods.holders()]
    # One container that writes it is enough: a sidecar may upload what the others write.
    return None if not losses or None in losses else losses[0]


def _loss_in(workload: Workload, pods: PodSet, container: Container, checkpoint: str, path: Path) -> Loss | None:
    mounts = mappings(container.spec, "volumeMounts", container.path)
    if _is_on_volume_of_job(workload, pods, checkpoint, mounts):
        return None
    if checkpoint.startswith("/"):
        at = _deepest_mount(mounts, checkpoint)
        if at is None:
            return Loss(path, f"container {container.name} mounts no volume at {checkpoint}, so the checkpoint is lost with it")
        writable = mounts[at].get("readOnly") is not True
    else:
        claimed = [at for at, mount in enumerate(mounts) if _claim_of(workload, pods, mount.get("name")) == checkpoint]
        if not claimed:
            return Loss(path, f"container {container.name} mounts no volume of the claim {checkpoint}")
        if any(mounts[at].get("readOnly") is not True for at in claimed):
            return None
        at, writable = claimed[0], False
    mount_path = (*container.path, "volumeMounts", at)
    if not writable:
        return Loss((*mount_path, "readOnly"), f"container {container.name} mounts it read-only")
    why = _volume_loss(pods, mounts[at].get("name"))
    return None if why is None else Loss(mount_path, why)


def _is_on_volume_of_job(workload: Workload, pods: PodSet, checkpoint: str, mounts: list[Object]) -> bool:
    """Return whether the checkpoint is on a claim that the job's controller mounts in every container."""
    if pods.kind.volumes is None:
        return False
    listed = lookup(workload.root, (*workload.owner_path(pods), *pods.kind.volumes))
    volumes = [volume for volume in listed if type(volume) is dict] if type(listed) is list else []
    if not checkpoint.startswith("/"):
        return any(volume.get("volumeClaimName") == checkpoint for volume in volumes)
    at = _deepest_mount([*mounts, *volumes], checkpoint)
    return at is not None and at >= len(mounts)


def _deepest_mount(mounts: list[Object], checkpoint: str) -> int | None:
    """Return the index of the deepest mount at or above the path ``checkpoint``; None if there is none."""
    path = normal_path(checkpoint)
    holding: dict[str, int] = {}
    for at, mount in enumerate(mounts):
        mount_path = mount.get("mountPath")
        if type(mount_path) is str:
            normal = normal_path(mount_path)
            if path == normal or path.startswith(f"{normal.rstrip('/')}/"):
                holding[normal] = at
    return holding[max(holding, key=len)] if holding else None


def _volume_loss(pods: PodSet, name: object) -> str | None:
    volume = pods.volume(name)
    if volume is None:
        # The API accepts mounts of undeclared volumes only for the claim templates of a StatefulSet.
        return None
    sources = [key for key in volume[1] if key != "name"]
    return next((_LOST[key] for key in sources if key in _LOST), None) if sources else _LOST["emptyDir"]


def _claim_of(workload: Workload, pods: PodSet, name: object) -> object:
    """Return the claim of the volume ``name``, or the claim template of a StatefulSet with that name."""
    volume = pods.volume(name)
    if volume is not None:
        return lookup(volume[1], ("persistentVolumeClaim", "claimName"))
    path = workload.kind.claim_templates
    if path is None:
        return None
    holder = lookup(workload.root, path[:-1]) or {}
    templates = sequence(holder, str(path[-1]), path[:-1])
    return name if name in [lookup(template, ("metadata", "name")) for template in templates] else None
