"""Parameters of the rule `placement`."""

from typing import Literal

from gpugate.policies.framework.params import Params


class PlacementParams(Params):
    """Parameters of `placement`."""

    shared: bool = False
    """Whether cards handed out in shares of time count as the card, too, where the name does not say `shared`."""
    driver_labels: Literal["Old", "New"] = "Old"
    """Which labels say the versions of driver and CUDA: `Old` is `nvidia.com/cuda.driver.major` and the like, which every release
    of GPU Feature Discovery up to v0.20.0 writes; `New` is `nvidia.com/cuda.driver-version.major`, written since v0.15.0."""
    no_node_matches: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that no known node suits are refused, or only warned about (nodes that scale up from none)."""
