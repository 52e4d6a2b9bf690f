"""Whether what a run says it keeps its checkpoints in outlives the pod and its node."""

import re
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, Path, lookup, mappings, sequence
from gpugate.policies.workloads.container import Container, normal_path
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: What says that there is nothing to keep: a replica that serves from what others hold.
NOTHING: Final = "none"
#: Schemes of object stores and of file systems over the network, as frameworks and ``fsspec`` write them.
_STORES: Final = frozenset(
    [
        *("s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs", "oss", "cos", "cosn"),
        *("obs", "oci", "r2", "b2", "swift", "hdfs", "webhdfs", "https", "mlflow", "wandb", "hf"),
    ]
)
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://[^\s/]\S*", re.ASCII)
_CLAIM: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_LONGEST: Final = 1024
#: Volumes that go with the pod or with its node, and what they are called.
_GONE: Final = {
    "emptyDir": "an emptyDir goes with the pod",
    "ephemeral": "the claim of an ephemeral volume is deleted with the pod",
    "hostPath": "a hostPath goes with the node",
    "gitRepo": "a gitRepo goes with the pod",
    "configMap": "a configMap cannot be written to",
    "secret": "a secret cannot be written to",
    "downwardAPI": "a downwardAPI volume cannot be written to",
    "projected": "a projected volume cannot be written to",
    "image": "an image volume cannot be written to",
}


class Loss(NamedTuple):
    """Why a checkpoint would be lost: where, and what is wrong there."""

    path: Path
    what: str


def is_readable(written: str) -> bool:
    """Whether ``written`` is a form that can be read: a path, a URL of a store, a claim's name, or nothing to keep."""
    if len(written) > _LONGEST:
        return False
    url = _URL.fullmatch(written)
    if url is not None:
        return url[1] in _STORES
    return (written.startswith("/") and normal_path(written) != "//") or _CLAIM.fullmatch(written) is not None


def loss_of(workload: Workload, pods: PodSet, written: str, place: Path) -> Loss | None:
    """Why what ``written`` names does not outlive the pods; None where it does.

    Args:
        workload: the workload.
        pods: those of its pods that are interrupted.
        written: a checkpoint that :func:`is_readable`.
        place: where it is written.
    """
    if written == NOTHING or _URL.fullmatch(written) is not None:
        return None
    holders = pods.holders()
    found = [_loss_in(workload, pods, one, written, place) for one in holders]
    # One container that writes it is enough: a sidecar may upload what others leave it.
    return None if not found or None in found else found[0]


def _loss_in(workload: Workload, pods: PodSet, container: Container, written: str, place: Path) -> Loss | None:
    mounts = mappings(container.spec, "volumeMounts", container.path)
    if _is_on_jobs_volume(workload, pods, written, mounts):
        return None
    if not written.startswith("/"):
        claimed = [at for at, mount in enumerate(mounts) if _claim_of(workload, pods, mount.get("name")) == written]
        if not claimed:
            return Loss(place, f"no volume of the claim {written} is mounted in {container.name}")
        return None if any(mounts[at].get("readOnly") is not True for at in claimed) else _read_only(container, claimed[0])
    at = _nearest(mounts, written)
    if at is None:
        return Loss(place, f"{written} lies on no volume that is mounted in {container.name}, and so goes with the container")
    if mounts[at].get("readOnly") is True:
        return _read_only(container, at)
    return _loss_on(pods, mounts[at].get("name"), container, at)


def _is_on_jobs_volume(workload: Workload, pods: PodSet, written: str, mounts: list[Object]) -> bool:
    """Whether it is on a claim that the job's controller mounts in every container."""
    if pods.kind.volumes is None:
        return False
    stated = lookup(workload.root, (*workload.owner_path(pods), *pods.kind.volumes))
    volumes = [one for one in stated if type(one) is dict] if type(stated) is list else []
    if not written.startswith("/"):
        return any(one.get("volumeClaimName") == written for one in volumes)
    both = [*mounts, *volumes]
    at = _nearest(both, written)
    return at is not None and at >= len(mounts)


def _nearest(mounts: list[Object], written: str) -> int | None:
    """The mount that holds the path ``written``: the deepest one at it or above."""
    wanted = normal_path(written)
    found: dict[str, int] = {}
    for at, mount in enumerate(mounts):
        path = mount.get("mountPath")
        if type(path) is str and (wanted == normal_path(path) or wanted.startswith(f"{normal_path(path).rstrip('/')}/")):
            found[normal_path(path)] = at
    return found[max(found, key=len)] if found else None


def _loss_on(pods: PodSet, name: object, container: Container, at: int) -> Loss | None:
    volume = pods.volume(name)
    if volume is None:
        # The API takes no mount of a volume that nobody states, but for those that a StatefulSet's templates make.
        return None
    sources = [key for key in volume[1] if key != "name"]
    gone = next((_GONE[key] for key in sources if key in _GONE), "an emptyDir goes with the pod" if not sources else None)
    return None if gone is None else Loss((*container.path, "volumeMounts", at), gone)


def _read_only(container: Container, at: int) -> Loss:
    return Loss((*container.path, "volumeMounts", at, "readOnly"), f"{container.name} mounts it read-only")


def _claim_of(workload: Workload, pods: PodSet, name: object) -> object:
    """The claim behind the volume called ``name``, or the template of a StatefulSet that makes it."""
    volume = pods.volume(name)
    if volume is not None:
        return lookup(volume[1], ("persistentVolumeClaim", "claimName"))
    path = workload.kind.claim_templates
    if path is not None:
        holder = lookup(workload.root, path[:-1]) or {}
        made = [lookup(one, ("metadata", "name")) for one in sequence(holder, str(path[-1]), path[:-1])]
        return name if name in made else None
    return None
