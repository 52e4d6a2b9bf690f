"""Images of accelerator pods are the same on every node, from known registries, and pulled only if needed.

## What it does

Reads the image of every container, init containers included, of pods that request accelerators. Without parameters it writes
nothing. It warns about an image in a gang whose tag moves (`latest`, or none), parts of a gang with different tags of the same
image, and `imagePullPolicy: Always` on an image with a fixed tag. It refuses a reference that no runtime can read.

Parameters add these: digests, in gangs or everywhere; allowed registries; a warning about large images with the amount that nodes
pull; references rewritten to a mirror of their registry; and `IfNotPresent` in place of `Always`, in templates only: in pods the
API server's AlwaysPullImages requires Always. The last two overwrite values of the user. In a template that Git or an operator
controls they are withheld, with the line to commit; the pods of that template still get the mirror.

The rule does not read which images nodes have already, nor volumes of type `image`.

## Why

Nodes pull the same moving tag at different times: the workers of one run then have different code, and hang or diverge. A digest
cannot move. `Always` does not pull layers again that the node has: it asks the registry at every start of a container for the
meaning of the tag, and no pod starts while the registry does not answer. After a tag has moved, every node pulls all changed
layers. An image of 20GiB that eight nodes pull at once keeps 64 accelerators waiting.

## Practice

- Field guide, "What we learned the hard way": large images are on the nodes before the job, from a registry within the cluster.
- Orchestration guide, "Image Security": only approved images run.
- Orchestration guide, "Distributed Training Hangs": every node runs the same versions of CUDA and NCCL.

## Example

With `mirrors: [{from: docker.io, to: mirror.example.com/docker.io}]`, `image: pytorch/pytorch:2.7.1` becomes:

```yaml
image: mirror.example.com/docker.io/pytorch/pytorch:2.7.1
```
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.framework.reasons import Reaction, Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.gangs.gang import Gang, gang_of
from gpugate.policies.kube.cel import UNIQUE, CelRule
from gpugate.policies.kube.fields import string
from gpugate.policies.kube.images import Image, read_image
from gpugate.policies.kube.quantity import show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: A registry, or a folder or repository of one, with the registry written out: ``docker.io/pytorch``.
ImagePrefix: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$",
    ),
]
#: The tag of an image.
Tag: TypeAlias = Annotated[str, Field(max_length=128, pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


class Mirror(Params):
    """A registry that has copies of another's images."""

    from_: Annotated[ImagePrefix, Field(alias="from")]
    """The registry, or a folder of it, with the registry written out: `docker.io/pytorch`."""
    to: ImagePrefix
    """The registry or folder that replaces it."""


class LargeImage(Params):
    """An image that takes long to pull."""

    image: ImagePrefix
    """The repository, or a folder of repositories, with the registry written out."""
    size: Bytes
    """Its size when pulled."""


class ImagesParams(Params):
    """Parameters of `images`."""

    validations = (
        CelRule(
            "!has(self.mirrors) || self.mirrors.all(a, self.mirrors.all(b, !(a.to + '/').startsWith(b.from + '/')))",
            "mirrors: the replacement of a registry must not be replaced itself",
        ),
    )

    moving_tags: Annotated[tuple[Tag, ...], *UNIQUE] = ("latest",)
    """Tags that move to other images."""
    moving: Reaction = "Warn"
    """What happens if an image has one of them."""
    moving_in: Literal["Gangs", "Everywhere"] = "Gangs"
    """Where moving tags are checked."""
    digests: Literal["Nowhere", "Gangs", "Everywhere"] = "Nowhere"
    """Where an image must have a digest."""
    registries: Annotated[tuple[ImagePrefix, ...], *UNIQUE] = ()
    """Allowed registries, and folders of them; an empty list allows all. Docker Hub is `docker.io`."""
    always: Literal["Allow", "Warn"] = "Warn"
    """What happens if an image whose tag does not move has imagePullPolicy Always."""
    write_if_not_present: Literal["Never", "Digests", "Tags"] = "Never"
    """Where imagePullPolicy Always becomes IfNotPresent in templates: for images with a digest, or also with a fixed tag."""
    # The API server limits the cost of comparing all pairs.
    mirrors: Annotated[tuple[Mirror, ...], Field(max_length=16)] = ()
    """Registries whose images come from another registry; the longest that matches applies."""
    large_images: Annotated[tuple[LargeImage, ...], Field(max_length=64)] = ()
    """Large images, which gpugate reports, so that the cluster pulls them in advance."""

    @model_validator(mode="after")
    def _replaces_no_mirror(self) -> Self:
        for mirror in self.mirrors:
            if any(f"{mirror.to}/".startswith(f"{other.from_}/") for other in self.mirrors):
                message = f"mirrors: the replacement of a registry must not be replaced itself: {mirror.to}"
                raise ValueError(message)
        return self


def _containers_with_image(pods: PodSet) -> Iterator[tuple[Container, str]]:
    """Yield the containers of the pods with their image reference."""
    for container in pods.containers:
        if container.role is not EPHEMERAL:
            reference = string(container.spec, "image", container.path)
            if reference:
                yield container, reference


def _has_moving_tag(image: Image, params: ImagesParams) -> bool:
    """Return whether the policy lists the tag of the image as one that moves."""
    return image.effective_tag in params.moving_tags


def mutate(workload: Workload, params: ImagesParams, _snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Write mirrors into image references, and IfNotPresent in place of Always."""
    if not params.mirrors and params.write_if_not_present == "Never":
        return
    for pods in workload.templated_gpu_pod_sets():
        for container, reference in _containers_with_image(pods):
            image = read_image(reference)
            if image is None:
                continue
            mirrors = [mirror for mirror in params.mirrors if image.is_below(mirror.from_)]
            if mirrors:
                longest = max(mirrors, key=lambda mirror: len(mirror.from_))
                mirrored = f"{longest.to}{image.name[len(longest.from_) :]}{image.suffix}"
                yield Edit("set", (*container.path, "image"), mirrored, f"image {mirrored}")
            if workload.is_template() and _gets_if_not_present(container, image, params):
                yield Edit("set", (*container.path, "imagePullPolicy"), "IfNotPresent", f"IfNotPresent in {container.name}")


def _gets_if_not_present(container: Container, image: Image, params: ImagesParams) -> bool:
    if container.spec.get("imagePullPolicy") != "Always" or params.write_if_not_present == "Never":
        return False
    return bool(image.digest) or (params.write_if_not_present == "Tags" and not _has_moving_tag(image, params))


def check(workload: Workload, params: ImagesParams, _snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Check the images of pods whose template was not reviewed before."""
    if workload.owner_was_reviewed():
        return
    gang = gang_of(workload)
    size = 1 if gang is None else gang.size
    for pods in workload.templated_gpu_pod_sets():
        for container, reference in _containers_with_image(pods):
            image = read_image(reference)
            if image is None:
                yield Finding(
                    "ImageUnreadable",
                    (*container.path, "image"),
                    f"{reference!r:.120} is no valid image reference, so no container runtime can pull it",
                    "Write registry/repository:tag, with the repository in lower case.",
                    measure=1,
                )
                continue
            yield from _check_name(container, reference, image, size, params)
            if params.large_images or container.spec.get("imagePullPolicy") == "Always":
                yield from _check_pulls(container, image, pods, size, params)
    if gang is not None and size > 1:
        yield from _check_equal(gang)


def _check_name(container: Container, reference: str, image: Image, size: int, params: ImagesParams) -> Iterator[Finding]:
    path = (*container.path, "image")
    if params.registries and not any(image.is_below(prefix) for prefix in params.registries):
        allowed = ", ".join(params.registries)
        yield Finding(
            "RegistryNotAllowed",
            path,
            f"{reference} comes from {image.name}, but the policy allows only {allowed}",
            f"Use an image from {'one of ' if len(params.registries) > 1 else ''}{allowed}.",
            measure=1,
        )
    if not image.digest and (params.digests == "Everywhere" or (params.digests == "Gangs" and size > 1)):
        yield Finding(
            "DigestMissing",
            path,
            f"{reference} has no digest, so nodes may pull different images",
            f"Write {image.name}{image.suffix}@sha256:... with the digest from the registry.",
            measure=1,
        )
    elif _has_moving_tag(image, params) and (params.moving_in == "Everywhere" or size > 1):
        tag = f"the moving tag {image.tag}" if image.tag else "no tag, which means the moving tag latest"
        subject = f"each of the {size} pods of the gang runs" if size > 1 else "the pod runs"
        may_be_old = container.spec.get("imagePullPolicy") in {"IfNotPresent", "Never"}
        yield Finding(
            "ImageMoves",
            path,
            f"{reference} has {tag}, so {subject} the image that its node pulled{', which may be old' if may_be_old else ''}",
            "Write the tag of a version, or the digest.",
            measure=1,
        )


def _check_pulls(container: Container, image: Image, pods: PodSet, size: int, params: ImagesParams) -> Iterator[Finding]:
    if container.spec.get("imagePullPolicy") == "Always" and not _has_moving_tag(image, params):
        start = f"every start of {size} pods" if size > 1 else "every start"
        yield Finding(
            "AskedEveryTime",
            (*container.path, "imagePullPolicy"),
            f"imagePullPolicy Always contacts the registry for {_version(image) or image.name} at {start}, although the image"
            " does not change, so no pod starts while the registry is down",
            "Write imagePullPolicy: IfNotPresent.",
        )
    matching = [large for large in params.large_images if image.is_below(large.image)]
    if matching:
        large = max(matching, key=lambda large: len(large.image))
        nodes = max(1, pods.count or size)
        total = f", {show_bytes(nodes * large.size)} for up to {nodes} nodes" if nodes > 1 else ""
        yield Finding(
            "LargeImage",
            (*container.path, "image"),
            f"a node without {image.name} pulls {show_bytes(large.size)}{total}, while its accelerators wait",
            "Pull the image in advance with a DaemonSet on these nodes, from a registry in the cluster.",
        )


def _check_equal(gang: Gang) -> Iterator[Finding]:
    """Report parts of a gang that run different tags of one image."""
    first: dict[tuple[str, str], tuple[PodSet, Image]] = {}
    for pods in gang.parts if all(part.is_whole for part in gang.parts) else ():
        for container, reference in _containers_with_image(pods):
            image = read_image(reference)
            if image is None:
                continue
            before, other = first.setdefault((container.name, image.name), (pods, image))
            if before is not pods and (image.tag, image.digest) != (other.tag, other.digest):
                here, there = (_version(version) or "latest" for version in (image, other))
                yield Finding(
                    "ImagesDiffer",
                    (*container.path, "image"),
                    f"{container.name} runs {image.name} at {here} here, but at {there} in another part of the gang",
                    "Use the same image in every part of the gang.",
                )


def _version(image: Image) -> str:
    return image.suffix.lstrip(":@")


REASONS: Final[dict[str, Reason]] = {
    "AskedEveryTime": Reason("Every start needs the registry, although the image does not change.", action="always"),
    "DigestMissing": Reason("The image has no digest, and the policy requires one."),
    "ImageMoves": Reason("The tag moves, so nodes may run different images.", action="moving"),
    "ImageUnreadable": Reason("The image reference does not parse."),
    "ImagesDiffer": Reason("Parts of one gang run different tags of one image.", action="Warn"),
    "LargeImage": Reason("The image is large, and GPUs wait while a node pulls it.", action="Warn"),
    "RegistryNotAllowed": Reason("The image comes from a registry that the policy does not list."),
}


RULE = Rule(
    id="images",
    title="Images of accelerator pods are the same on every node, from known registries, and pulled only if needed",
    since="0.1.0",
    params=ImagesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset({"annotations", "image", "imagePullPolicy"}),
    writes=frozenset({"image", "imagePullPolicy"}),
    documentation=__doc__,
    default_max_mode=Mode.MUTATE,
    default_mode_reason="Some teams use moving tags on purpose, and only they know which registries they trust.",
)
