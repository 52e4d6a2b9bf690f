"""Parameters of `namespace-limits`."""

from typing import Literal

from gpugate.policies.framework.params import Params


class NamespaceLimitsParams(Params):
    """Parameters of `namespace-limits`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that could never be made are refused, or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether a quota that is full now is warned about."""
