"""Images of accelerator pods are the same on every node, from registries that are known, and not asked for needlessly.

## What it does

Reads the image of every container, init containers included, of pods that ask for accelerators. Without parameters it writes
nothing, and warns of an image in a gang whose tag moves (`latest`, or none) and of parts of a gang with different tags of the
same image; of `imagePullPolicy: Always` on an image whose tag is pinned; and refuses a reference that no runtime can read.

Where the policy asks for it: digests, in gangs or everywhere; registries that images may come from; large images named, with
what pulling them cold comes to; references rewritten to a mirror of their registry; and `Always` made `IfNotPresent`, in
templates alone: on pods the apiserver's AlwaysPullImages insists on it. Both overwrite what is stated. In a template that Git
or an operator keeps they are left undone, with the line to commit; the pods that are made from it get the mirror all the same.

What nodes have pulled already is not looked at, nor are volumes of type `image`.

## Why

Nodes pull the same moving tag at different times: the workers of one run then have different code, and hang or diverge. A
digest cannot move. `Always` does not pull layers again that the node has: it asks the registry at every start of a container
what the tag means, and no pod starts while the registry does not answer. A tag that moves is pulled anew, all of it that
changed, by every node. An image of 20GiB that eight nodes pull at once keeps 64 accelerators waiting.

## Practice

- Field guide, "What we learned the hard way": large images are on the nodes before the job, from a registry within the cluster.
- Orchestration guide, "Image Security": only images that somebody vouches for run.
- Orchestration guide, "Distributed Training Hangs": every node runs the same versions of CUDA and NCCL.

## Example

With `mirrors: [{from: docker.io, to: mirror.example.com/docker.io}]`, `image: pytorch/pytorch:2.7.1` becomes:

```yaml
image: mirror.example.com/docker.io/pytorch/pytorch:2.7.1
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

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
from gpugate.policies.workloads.workload import PodSet, Workload

#: Pairs of mirrors are compared with each other, and the apiserver bounds what that may cost.
_MOST_MIRRORS: Final = 16
_PREFIX_PATTERN: Final = (
    r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*$"
)

#: A registry, or a folder or repository of one, with the registry written out: ``docker.io/pytorch``.
ImagePrefix: TypeAlias = Annotated[str, Field(min_length=1, max_length=255, pattern=_PREFIX_PATTERN)]
#: An image's tag.
Tag: TypeAlias = Annotated[str, Field(max_length=128, pattern="^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Reach: TypeAlias = Literal["Nowhere", "Gangs", "Everywhere"]


class Mirror(Params):
    """A registry that has copies of another's images."""

    from_: Annotated[ImagePrefix, Field(alias="from")]
    """The registry, or a folder of it, with the registry written out: `docker.io/pytorch`."""
    to: ImagePrefix
    """What stands in its place."""


class LargeImage(Params):
    """An image that takes long to pull."""

    image: ImagePrefix
    """The repository, or a folder of them, with the registry written out."""
    size: Bytes
    """How large it is when pulled."""


class ImagesParams(Params):
    """Parameters of `images`."""

    validations = (
        CelRule(
            "!has(self.mirrors) || self.mirrors.all(a, self.mirrors.all(b, !(a.to + '/').startsWith(b.from + '/')))",
            "mirrors: what stands in the place of a registry must not be replaced itself",
        ),
    )

    moving_tags: Annotated[tuple[Tag, ...], *UNIQUE] = ("latest",)
    """Tags that mean another image tomorrow."""
    moving: Reaction = "Warn"
    """What is done about them."""
    moving_in: Literal["Gangs", "Everywhere"] = "Gangs"
    """Where they are judged."""
    digests: Reach = "Nowhere"
    """Where an image must be named by its digest."""
    registries: Annotated[tuple[ImagePrefix, ...], *UNIQUE] = ()
    """Registries, and folders of them, that images may come from; any where the list is empty. Docker Hub is `docker.io`."""
    always: Literal["Allow", "Warn"] = "Warn"
    """What is done about imagePullPolicy Always on an image whose tag does not move."""
    write_if_not_present: Literal["Never", "Digests", "Tags"] = "Never"
    """Where imagePullPolicy Always becomes IfNotPresent in templates: with a digest, or with a tag that does not move, too."""
    mirrors: Annotated[tuple[Mirror, ...], Field(max_length=_MOST_MIRRORS)] = ()
    """Registries whose images are taken from another; of several that apply, the longest."""
    large_images: Annotated[tuple[LargeImage, ...], Field(max_length=64)] = ()
    """Images that are told of where they are used, so that nodes have them before."""

    @model_validator(mode="after")
    def _mirrors_lead_somewhere(self) -> ImagesParams:
        for one in self.mirrors:
            if any(f"{one.to}/".startswith(f"{other.from_}/") for other in self.mirrors):
                message = f"mirrors: what stands in the place of a registry must not be replaced itself: {one.to}"
                raise ValueError(message)
        return self


def _named(pods: PodSet) -> Iterator[tuple[Container, str]]:
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
        for container, written in _named(pods):
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
    return bool(image.digest) or (params.write_if_not_present == "Tags" and not _moves(image, params))


def _moves(image: Image, params: ImagesParams) -> bool:
    return image.effective_tag in params.moving_tags


def check(workload: Workload, params: ImagesParams, _facts: ClusterSnapshot) -> Iterator[Finding]:
    """Judge the images, those of pods whose template was judged aside."""
    if workload.owner_was_reviewed():
        return
    gang = gang_of(workload)
    size = 1 if gang is None else gang.size
    for pods in workload.templated_gpu_pod_sets():
        for container, written in _named(pods):
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
    elif _moves(image, params) and (params.moving_in == "Everywhere" or size > 1):
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
    if container.spec.get("imagePullPolicy") == "Always" and not _moves(image, params):
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
        for container, written in _named(pods):
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


REASONS: Final[dict[str, Reason]] = {
    "AskedEveryTime": Reason("Every start needs the registry, for an image that does not change.", action="always"),
    "DigestMissing": Reason("The image has no digest, and the policy requires one."),
    "ImageMoves": Reason("The tag moves, so nodes may run different images.", action="moving"),
    "ImageUnreadable": Reason("The image reference does not parse."),
    "ImagesDiffer": Reason("Parts of one gang run different tags of one image.", action="Warn"),
    "LargeImage": Reason("The image is large, and GPUs wait while a node pulls it.", action="Warn"),
    "RegistryNotAllowed": Reason("The image comes from a registry that the policy does not list."),
}

RULE = Rule(
    id="images",
    title="Images of accelerator pods are the same on every node, from known registries, and not asked for needlessly",
    since="0.1.0",
    params=ImagesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset({"annotations", "image", "imagePullPolicy"}),
    writes=frozenset({"image", "imagePullPolicy"}),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason="Some teams work with tags that move and know it, and which registries they trust nobody else can say.",
)
