"""Parameters of the rule `gang-packing`."""

from typing import Literal

from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action


class GangPackingParams(Params):
    """Parameters of `gang-packing`."""

    pool_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that all known nodes together could not hold is refused, or only warned about (nodes that scale up)."""
    domain_too_small: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang that no known topology domain could hold is refused, or only warned about (domains that scale up)."""
    mixed_capacity: Action = "Warn"
    """What is done about a gang that may run on spot and on-demand nodes at once."""
