"""Parameters of the rule `node-terms`."""

from typing import Annotated

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelKey


class NodeTermsParams(Params):
    """Parameters of `node-terms`."""

    known: Annotated[tuple[LabelKey, ...], *UNIQUE] = ()
    """Keys of labels and taints that nodes carry which are not there now: those of pools that scale up from none."""
