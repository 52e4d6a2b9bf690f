"""Parameters of the rule `gang-members`."""

from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action


class GangMembersParams(Params):
    """Parameters of `gang-members`."""

    priority: Action = "Deny"
    """What is done about a member with another priority class than the others."""
