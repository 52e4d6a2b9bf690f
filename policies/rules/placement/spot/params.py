"""Parameters of the rule `spot`, and what they come to: the labels and platforms that count."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelKey, LabelName
from gpugate.policies.rules.placement.toleration_params import TaintParam
from gpugate.policies.scheduling.spot_capacity import CLOUDS, clouds_on_nodes, every_label

_MOST: Final = 16
_EVERYWHERE: Final = every_label(())
_SPOT_LABELS: Final = dict(_EVERYWHERE)


class SpotLabel(Params):
    """A label of this cluster's spot nodes."""

    key: LabelKey
    """The label's key."""
    value: LabelName
    """Its value on spot nodes."""


class SpotParams(Params):
    """Parameters of `spot`."""

    clouds: Annotated[tuple[Literal["EKS", "GKE", "AKS", "Karpenter"], ...], *UNIQUE] = ()
    """The platforms whose spot nodes are chosen; where it is left out those found on nodes, or all where none is."""
    labels: Annotated[tuple[SpotLabel, ...], Field(max_length=_MOST)] = ()
    """Labels of spot nodes that this cluster sets itself, beside the platforms' own."""
    taints: Annotated[tuple[TaintParam, ...], Field(max_length=_MOST)] = ()
    """Taints of this cluster's spot nodes, tolerated where the annotation asks for them."""
    from_nodes: bool = True
    """Whether taints found on spot nodes that say so are tolerated, too, where the annotation asks for them."""
    preferred_gang: Literal["Deny", "Required"] = "Deny"
    """Whether a gang that prefers spot nodes is refused, or runs on nothing else."""
    by_hand: Literal["Deny", "Warn"] = "Warn"
    """Whether pods that select spot nodes themselves, without the annotation, are refused where they would lose their work, or only
    warned about."""
    interruptions: Annotated[int, Field(ge=0, le=1000)] = 3
    """Interruptions that a Job must survive at least."""
    least_grace: Annotated[int, Field(ge=0, le=3600)] = 10
    """Seconds that pods must have at least to write a checkpoint once they are told to end."""


def _own(params: SpotParams) -> tuple[tuple[str, str], ...]:
    return tuple((one.key, one.value) for one in params.labels)


def every_of(params: SpotParams) -> tuple[tuple[str, str], ...]:
    """The labels of spot nodes, whichever platform this is."""
    return every_label(_own(params)) if params.labels else _EVERYWHERE


def spot_of(params: SpotParams) -> Mapping[str, str]:
    """The same labels, by key."""
    return dict(every_of(params)) if params.labels else _SPOT_LABELS


def labels_of(params: SpotParams, snapshot: ClusterSnapshot) -> tuple[tuple[str, str], ...]:
    """The labels of the spot nodes that are chosen."""
    clouds = clouds_of(params, snapshot)
    own = _own(params)
    return (*(label for name in clouds for label in CLOUDS[name].labels), *own) if clouds or own else _EVERYWHERE


def clouds_of(params: SpotParams, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """The platforms whose spot nodes are chosen; none where none is known."""
    return params.clouds or clouds_on_nodes(snapshot)
