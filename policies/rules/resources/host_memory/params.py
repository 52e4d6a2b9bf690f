"""Parameters of the rule `host-memory`."""

from typing import Annotated, Literal

from pydantic import Field

from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.kube.quantity import GIB


class HostMemoryParams(Params):
    """Parameters of `host-memory`."""

    default_limits: bool = True
    """Whether a missing memory limit is put in; if not, it is refused."""
    memory_per_accelerator: Bytes = 32 * GIB
    """Memory given per accelerator where no nodes are known."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable memory kept back when it is shared out among its accelerators."""
    max_overcommit_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times its request a memory limit may be."""
    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no known node could hold is refused, or only warned about (nodes that scale up from none)."""
