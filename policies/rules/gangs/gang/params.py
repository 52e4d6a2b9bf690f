"""Parameters of the rule `gang`."""

from typing import Literal

from gpugate.policies.framework.params import Params, Seconds
from gpugate.policies.framework.reasons import Action
from gpugate.policies.kube.cel import LabelValue


class GangParams(Params):
    """Parameters of `gang`."""

    scheduler: Literal["Kueue", "Coscheduling", "Volcano", "Kubernetes", "KAI", "None"] = "Kueue"
    """Who holds the pods of a gang together in this cluster; Kubernetes from 1.36 on, with its feature gates on."""
    scheduler_name: str | None = None
    """schedulerName of gang pods; Volcano's and KAI's own where it is left out, untouched for the others."""
    kai_queue: LabelValue | None = None
    """KAI queue of gang pods that name none."""
    pod_groups: Literal["Create", "Leave"] = "Create"
    """Whether gpugate's controller makes the PodGroup of a gang that has none, for Coscheduling, Volcano and Kubernetes."""
    volcano_queue: str | None = None
    """Volcano queue of the PodGroups that are made, for pods that name none."""
    schedule_timeout: Seconds | None = None
    """How long Coscheduling holds places for a gang until all of it has one; its own default where it is left out."""
    stuck_after: Seconds = 600
    """How long members of a gang may be missing, or not run, before the gang is reported as stuck."""
    fragments: Action = "Deny"
    """What is done about accelerators per pod that leave a remainder on every node."""
    one_by_one: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang made by a Deployment, ReplicaSet or DaemonSet is refused, or only warned about."""
