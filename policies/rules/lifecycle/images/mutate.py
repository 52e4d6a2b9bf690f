"""Edits of the rule `images`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import string
from gpugate.policies.kube.images import Image, read_image
from gpugate.policies.patch import Edit
from gpugate.policies.rules.lifecycle.images.params import ImagesParams
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def containers_with_image(pods: PodSet) -> Iterator[tuple[Container, str]]:
    """The containers of the pods, and the image of each as written."""
    for container in pods.containers:
        if container.role is not EPHEMERAL:
            written = string(container.spec, "image", container.path)
            if written:
                yield container, written


def mutate(workload: Workload, params: ImagesParams, _facts: ClusterSnapshot) -> Iterator[Edit]:
    """Take images from their mirrors, and pull none that is there."""
    if not params.mirrors and params.write_if_not_present == "Never":
        return
    for pods in workload.templated_gpu_pod_sets():
        for container, written in containers_with_image(pods):
            image = read_image(written)
            if image is None:
                continue
            mirrored = _mirrored(image, params)
            if mirrored is not None:
                yield Edit("set", (*container.path, "image"), mirrored, f"image {mirrored}")
            if workload.is_template() and _need_not_ask(container, image, params):
                yield Edit("set", (*container.path, "imagePullPolicy"), "IfNotPresent", f"IfNotPresent in {container.name}")


def _mirrored(image: Image, params: ImagesParams) -> str | None:
    best = max((one for one in params.mirrors if image.is_below(one.from_)), key=lambda one: len(one.from_), default=None)
    return None if best is None else f"{best.to}{image.name[len(best.from_) :]}{image.suffix}"


def _need_not_ask(container: Container, image: Image, params: ImagesParams) -> bool:
    if container.spec.get("imagePullPolicy") != "Always" or params.write_if_not_present == "Never":
        return False
    return bool(image.digest) or (params.write_if_not_present == "Tags" and not has_moving_tag(image, params))


def has_moving_tag(image: Image, params: ImagesParams) -> bool:
    """Return whether the policy lists the tag of the image as one that moves."""
    return image.effective_tag in params.moving_tags
