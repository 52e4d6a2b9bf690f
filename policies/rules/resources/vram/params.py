"""Parameters of the rule `vram`."""

from typing import Annotated, Literal

from pydantic import Field

from gpugate.policies.framework.params import Params


class HeadroomParams(Params):
    """Room for activations and KV cache beside a model's weights, in GB per so many GB of weights."""

    in_order = (("least", "most"),)

    weights: Annotated[float, Field(gt=0)] = 14.0
    """GB of weights that the other two figures are for."""
    least: Annotated[float, Field(ge=0)] = 4.0
    """GB of headroom beside them at least: what the node affinity counts on."""
    most: Annotated[float, Field(ge=0)] = 8.0
    """GB of headroom beside them for comfort, shown in the sums."""


class VramParams(Params):
    """Parameters of `vram`."""

    affinity: bool = True
    """Whether a node affinity keeps pods off nodes whose cards are too small."""
    headroom: HeadroomParams = HeadroomParams()
    """Headroom for activations and KV cache beside a model's weights."""
    no_card_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that no known card in reach could hold are refused, or only warned about (nodes that scale up from none)."""
    headroom_tight: Literal["Deny", "Warn"] = "Warn"
    """Whether pods are refused, or only warned about, whose weights fit a card in reach but whose headroom fits none."""
