"""Parameters of the rule `images`."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.framework.reasons import Reaction
from gpugate.policies.kube.cel import UNIQUE, CelRule

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
