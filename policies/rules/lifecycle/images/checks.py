"""Findings of the rule `images`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import Gang, gang_of
from gpugate.policies.kube.images import Image, read_image
from gpugate.policies.kube.quantity import show_bytes
from gpugate.policies.rules.lifecycle.images.mutate import containers_with_image, has_moving_tag
from gpugate.policies.rules.lifecycle.images.params import ImagesParams
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: ImagesParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Judge the images, those of pods whose template was judged aside."""
    if workload.owner_was_reviewed():
        return
    gang = gang_of(workload)
    size = 1 if gang is None else gang.size
    for pods in workload.templated_gpu_pod_sets():
        for container, written in containers_with_image(pods):
            image = read_image(written)
            if image is None:
                yield _unreadable(container, written)
                continue
            yield from _check_name(container, written, image, size, params)
            yield from _check_pulling(container, image, pods, size, params)
    if gang is not None and size > 1:
        yield from _check_alike(gang)


def _unreadable(container: Container, written: str) -> Finding:
    return Finding(
        "ImageUnreadable",
        (*container.path, "image"),
        f"{written!r:.120} names no image: no container runtime can pull it",
        "Write registry/repository:tag, the repository in small letters.",
        measure=1,
    )


def _check_name(container: Container, written: str, image: Image, size: int, params: ImagesParams) -> Iterator[Finding]:
    path = (*container.path, "image")
    if params.registries and not any(image.is_below(one) for one in params.registries):
        yield Finding(
            "RegistryNotAllowed",
            path,
            f"{written} comes from {image.name}, which is in none of {', '.join(params.registries)}",
            f"Take it from {params.registries[0]}."
            if len(params.registries) == 1
            else f"Take it from one of {', '.join(params.registries)}.",
            measure=1,
        )
    if not image.digest and (params.digests == "Everywhere" or (params.digests == "Gangs" and size > 1)):
        yield Finding(
            "DigestMissing",
            path,
            f"{written} is named without its digest: nodes may pull different images of it",
            f"Write {image.name}{image.suffix}@sha256:... with the digest that the registry gives.",
            measure=1,
        )
    elif has_moving_tag(image, params) and (params.moving_in == "Everywhere" or size > 1):
        what = f"the tag {image.tag} moves" if image.tag else "no tag means latest, which moves"
        each = f"each of the {size} pods of the gang runs" if size > 1 else "the pod runs"
        yield Finding(
            "ImageMoves",
            path,
            f"{written}: {what}, and {each} what its node pulled{_when(container)}",
            "Name a version, or the digest.",
            measure=1,
        )


def _when(container: Container) -> str:
    return ", the last one or an older one" if container.spec.get("imagePullPolicy") in ("IfNotPresent", "Never") else ""


def _check_pulling(container: Container, image: Image, pods: PodSet, size: int, params: ImagesParams) -> Iterator[Finding]:
    if container.spec.get("imagePullPolicy") == "Always" and not has_moving_tag(image, params):
        starts = f"every start of {size} pods" if size > 1 else "every start"
        yield Finding(
            "AskedEveryTime",
            (*container.path, "imagePullPolicy"),
            f"Always asks the registry at {starts} what {image.suffix.lstrip(':@') or image.name} means, which does not change:"
            " layers that a node has are not pulled again, but nothing starts while the registry does not answer",
            "Write imagePullPolicy: IfNotPresent.",
        )
    large = max((one for one in params.large_images if image.is_below(one.image)), key=lambda one: len(one.image), default=None)
    if large is not None:
        nodes = max(1, pods.count or size)
        times = f", up to {nodes} nodes of them {show_bytes(nodes * large.size)}" if nodes > 1 else ""
        yield Finding(
            "LargeImage",
            (*container.path, "image"),
            f"{image.name} has {show_bytes(large.size)}: a node without it pulls that{times}, while its accelerators wait",
            "Have it pulled before, by a DaemonSet on these nodes, and from a registry within the cluster.",
        )


def _check_alike(gang: Gang) -> Iterator[Finding]:
    """Parts of a gang that run different tags of one image."""
    first: dict[tuple[str, str], tuple[PodSet, Image]] = {}
    for pods in gang.parts if all(part.is_whole for part in gang.parts) else ():
        for container, written in containers_with_image(pods):
            image = read_image(written)
            if image is None:
                continue
            before, other = first.setdefault((container.name, image.name), (pods, image))
            if before is not pods and (image.tag, image.digest) != (other.tag, other.digest):
                yield Finding(
                    "ImagesDiffer",
                    (*container.path, "image"),
                    f"{container.name} runs {image.name} at {_shown(image)} here, at {_shown(other)} in another part of the gang",
                    "Name the same image in every part of the gang.",
                )


def _shown(image: Image) -> str:
    return image.suffix.lstrip(":@") or "latest"
