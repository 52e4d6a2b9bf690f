"""Parameters of the rule `commitment`."""

from typing import Annotated

from pydantic import Field

from gpugate.policies.framework.params import Params


class CommitmentParams(Params):
    """Parameters of `commitment`."""

    max_ratio: Annotated[float, Field(ge=1)] = 1.5
    """How many times a node's allocatable memory the limits of its pods may come to."""
    refuse: bool = False
    """Whether what would pass the ratio with the pods that run now is refused; otherwise it is warned about."""
