"""Parameters of `queue-quota`."""

from typing import Literal

from gpugate.policies.framework.params import Params


class QueueQuotaParams(Params):
    """Parameters of `queue-quota`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a workload that its queue could never admit is refused, or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether a workload that does not fit now is warned about."""
