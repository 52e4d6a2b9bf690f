"""Parameters of the rule `numa`."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from gpugate.policies.framework.params import Millicores, Params
from gpugate.policies.kube.cel import MOST, VARIABLE, CelRule, LabelKey, LabelValue

#: What guides spread over, as if nodes had it (kubernetes/kubernetes and Node Feature Discovery set no such label).
_STOCK_KEY: Final = "topology.kubernetes.io/NUMANode"


class NodeLabel(Params):
    """A node label."""

    key: LabelKey
    """The label's key."""
    value: LabelValue = "true"
    """The label's value."""


class NumaParams(Params):
    """Parameters of `numa`."""

    validations = (
        CelRule(
            f"!has(self.ncclEnv) || self.ncclEnv.all(name, name.matches('^({VARIABLE})$'))",
            "ncclEnv: a name is no environment variable's (letters, digits and _)",
        ),
    )

    guaranteed: bool = True
    """Whether pods are raised to Guaranteed quality of service with whole CPUs."""
    max_raise_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times itself a memory request may be raised by; beyond that the limit is no statement of need."""
    max_share_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times the fair share of its accelerators a pod may be raised to, lest it strand others of the node."""
    cpu_per_accelerator: Millicores = 4000
    """CPU given per accelerator, where a container states none and no nodes are known."""
    max_cpu_per_accelerator: Millicores = 16000
    """The most CPU given per accelerator from a node's share."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable CPU kept back when it is shared out among its accelerators."""
    aligned_nodes: NodeLabel | None = None
    """The label of nodes whose kubelets are known to align; no node affinity is added where this is left out."""
    no_zone_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no kubelet's Topology Manager could ever admit is refused, or only warned about."""
    affinity: Literal["Required", "Preferred"] = "Preferred"
    """Whether pods must go to such nodes or only prefer them; required, a gang larger than these nodes never starts."""
    topology_key: LabelKey = _STOCK_KEY
    """The node label that stands for one NUMA domain, in clusters with a node object per domain."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """What the spread constraint does where it can't be met."""
    nccl_topo_file: str | None = None
    """Value of NCCL_TOPO_FILE in containers that hold accelerators."""
    nccl_env: Annotated[dict[str, str], Field(max_length=MOST)] = Field(default_factory=dict)
    """Other environment variables for NCCL in those containers."""

    @field_validator("nccl_env")
    @classmethod
    def _named(cls, found: dict[str, str]) -> dict[str, str]:
        for name in found:
            if not re.fullmatch(VARIABLE, name):
                message = f"{name!r:.60} is no name of an environment variable (letters, digits and _)"
                raise ValueError(message)
        return found
