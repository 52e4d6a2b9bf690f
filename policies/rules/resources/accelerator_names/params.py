"""Parameters of the rule `accelerator-names`."""

from typing import Annotated

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelKey


class AcceleratorNamesParams(Params):
    """Parameters of `accelerator-names`."""

    served: Annotated[tuple[LabelKey, ...], *UNIQUE] = ()
    """Resource names that this cluster's device plugins serve, though they look like mistakes."""
