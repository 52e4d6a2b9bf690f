"""Parameters of the rule `environment`."""

from typing import Annotated

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, VariableName


class EnvironmentParams(Params):
    """Parameters of `environment`."""

    debugging_aids: bool = True
    """Whether variables that are meant for debugging, and make everything slow, are warned about."""
    read: Annotated[tuple[VariableName, ...], *UNIQUE] = ()
    """Variables that something here does read, though they look like mistakes."""
