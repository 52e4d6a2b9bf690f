"""Parameters of the rule `reserved-nodes`."""

from typing import Annotated, Literal

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelName
from gpugate.policies.workloads.device_access import STACK_ACCOUNTS, AccountPatterns, ImagePatterns


class ReservedNodesParams(Params):
    """Parameters of `reserved-nodes`."""

    parts: Literal["Warn", "Allow"] = "Warn"
    """What is said of pods without accelerators of a workload whose other pods ask for some."""
    images: ImagePatterns = ()
    """Images, with `*` for any characters, of pods that may go to accelerator nodes."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods may go to accelerator nodes."""
    priority_classes: Annotated[tuple[LabelName, ...], *UNIQUE] = ()
    """Priority classes whose pods may go to accelerator nodes, besides those of the system."""
