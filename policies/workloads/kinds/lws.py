"""The kind of LeaderWorkerSet.

Sources: LeaderWorkerSet v0.7: API types, ``pkg/controllers``.
"""

from typing import Final

from gpugate.policies.workloads.kinds.model import Members, PodSetSpec, WorkloadKind

_TEMPLATES: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = (*_TEMPLATES, "leaderTemplate")

#: The pods belong to StatefulSets; only labels name the LeaderWorkerSet.
LEADER_WORKER_SET: Final = WorkloadKind(
    "leaderworkerset.x-k8s.io",
    "LeaderWorkerSet",
    "leaderworkersets",
    (
        PodSetSpec(_LEADER, (("spec", "replicas"),)),
        PodSetSpec((*_TEMPLATES, "workerTemplate"), ((*_TEMPLATES, "size"), ("spec", "replicas")), leader=_LEADER),
    ),
    gangs=("spec", "replicas"),
    serving=True,
    running=(("status", "readyReplicas"),),
    members=Members("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet", index_label="leaderworkerset.sigs.k8s.io/group-index"),
    exclusive_topology="leaderworkerset.sigs.k8s.io/exclusive-topology",
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
)
