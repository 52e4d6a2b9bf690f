"""Parameters of the rule `shared-memory`."""

from typing import Annotated

from pydantic import Field

from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.kube.quantity import GIB


class SharedMemoryParams(Params):
    """Parameters of `shared-memory`."""

    in_order = (("min_size", "max_size"),)

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Part of the container's memory limit that /dev/shm may take."""
    min_size: Bytes = 1 * GIB
    """Smallest size given, where the memory limit allows it."""
    max_size: Bytes = 16 * GIB
    """Largest size given."""
    size_without_limit: Bytes = 8 * GIB
    """Size given where the container has no memory limit."""
    init_containers: bool = False
    """Whether init containers that ask for accelerators get the mount, too (sidecars always do)."""
