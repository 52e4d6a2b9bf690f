"""Parameters of the rule `queue`."""

from typing import Annotated, get_args

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelValue
from gpugate.policies.workloads.kinds import QueuedKind


class QueueParams(Params):
    """Parameters of `queue`."""

    required: bool = False
    """Whether a workload for which no queue can be found is refused."""
    queue_name: LabelValue | None = None
    """Queue of workloads whose object and namespace name none."""
    kinds: Annotated[tuple[QueuedKind, ...], *UNIQUE] = get_args(QueuedKind)
    """Kinds that stand in queues here; Kueue's own configuration says which it manages."""
