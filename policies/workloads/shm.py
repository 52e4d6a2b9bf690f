"""The mount at /dev/shm of a container.

A memory-backed emptyDir is a tmpfs whose pages are charged to the container that writes them and count against that
container's memory limit; it may grow to the smallest of node allocatable, the pod's memory limit and ``sizeLimit``
(kubernetes/website issue 36494, kubernetes/kubernetes issue 125852).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpugate.policies.kube.fields import MalformedError, Object, Path, mapping
from gpugate.policies.kube.quantity import QuantityError, whole

DIRECTORY: Final = "/dev/shm"  # noqa: S108 - the mount path that containers use


class SharedMemory(NamedTuple):
    """A mount that decides what /dev/shm is in a container.

    Attributes:
        mount: the volume mount.
        volume: its volume; None if the pod has none of that name.
        place: path of the volume.
    """

    mount: Object
    volume: Object | None
    place: Path

    @property
    def is_memory(self) -> bool:
        """True if the volume is an emptyDir in memory."""
        source = (self.volume or {}).get("emptyDir")
        return type(source) is dict and source.get("medium") == "Memory"

    @property
    def size_limit(self) -> int | None:
        """Its ``sizeLimit`` in bytes; None if it has none.

        Raises:
            MalformedError: the size is no quantity.
        """
        written = mapping(self.volume or {}, "emptyDir", self.place).get("sizeLimit")
        if written is None:
            return None
        try:
            return whole(written)
        except QuantityError as error:
            raise MalformedError((*self.place, "emptyDir", "sizeLimit"), str(error)) from None
