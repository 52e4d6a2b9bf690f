"""Container image references, parsed as the container runtime parses them (``github.com/distribution/reference``)."""

import re
from typing import Final, NamedTuple

from gpugate.policies.kube.memo import cached

#: Default registry, repository prefix of single words in it, and tag of references with neither tag nor digest.
_DEFAULT_REGISTRY: Final = "docker.io"
_OFFICIAL: Final = "library"
_DEFAULT_TAG: Final = "latest"
#: Maximum length of name, tag and digest, in characters.
_LONGEST: Final = 255 + 1 + 128 + 1 + 256
_REGISTRY: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?")
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REST: Final = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}))?"
)


class Image(NamedTuple):
    """An image reference: registry and repository in full (``docker.io/library/nginx``), tag and digest; absent ones are empty."""

    name: str
    tag: str
    digest: str

    @property
    def effective_tag(self) -> str:
        """The tag that is pulled; empty if the digest decides."""
        return "" if self.digest else self.tag or _DEFAULT_TAG

    @property
    def suffix(self) -> str:
        """Tag and digest as written after the name."""
        return (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    def is_below(self, prefix: str) -> bool:
        """Return whether the image is ``prefix`` itself, or in that registry or folder."""
        return self.name == prefix or self.name.startswith(f"{prefix}/")


def read_image(written: str) -> Image | None:
    """Return the parsed image reference; None if no runtime could pull it."""
    return _read(written) if len(written) <= _LONGEST else None


@cached(4096)
def _read(written: str) -> Image | None:
    first, slash, rest = written.partition("/")
    # example/app is docker.io/example/app: the first part is a registry only in these forms.
    is_registry = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    registry = first if is_registry else _DEFAULT_REGISTRY
    match = _REST.fullmatch(rest if registry is first else written)
    if match is None or _REGISTRY.fullmatch(registry) is None:
        return None
    path = match["path"]
    if registry == "index.docker.io":
        registry = _DEFAULT_REGISTRY
    if registry == _DEFAULT_REGISTRY and "/" not in path:
        path = f"{_OFFICIAL}/{path}"
    return Image(f"{registry}/{path}", match["tag"] or "", match["digest"] or "")
