"""The kinds that may own workloads: which ownerReferences of a caller that is no known controller can be true.

Sources: ``k8s.io/kubernetes`` 1.36 ``pkg/apis`` (the API groups of Kubernetes itself; a CustomResourceDefinition needs a group
with a dot), and operators whose pods have such a controller: LeaderWorkerSet (``Pod``, of StatefulSets), vCluster (``Service``),

- Spark: the driver pod, under the service account of its own spec, creates the executor pods, or StatefulSets of them, and is their
  controller (``Pod``; apache/spark ``BasicExecutorFeatureStep``, ``StatefulSetPodsAllocator``).
  kubeflow/spark-operator 2.5.2 creates the driver pod, whose controller is the ``SparkApplication``; executor pods name it as an
  owner that is not their controller (``sparkoperator.k8s.io``, ``internal/controller/sparkapplication/submission.go``). The server
  pod of a ``SparkConnect`` has that as its controller (``internal/controller/sparkconnect/reconciler.go``). A
  ``ScheduledSparkApplication`` controls nothing.
- Flink, native: the JobManager, under ``serviceAccount`` of the ``FlinkDeployment``, creates the TaskManager pods; their
  controller is the JobManager's ``Deployment`` (apache/flink ``Fabric8FlinkKubeClient.setOwnerReference``). Standalone: the
  operator creates Deployments for both. A ``FlinkDeployment`` owns these but does not control them (``flink.apache.org``;
  apache/flink-kubernetes-operator 1.15 ``AbstractFlinkResourceReconciler.setOwnerReference``, ``docs/operations/rbac.md``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from gpugate.policies.kube.fields import Object

#: Kinds of Kubernetes' own API groups that are the controller of pods or of workloads in practice; no other kind of these is.
_OWNERS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"Pod", "ReplicationController", "Service"}),
    "apps": frozenset({"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"}),
    "batch": frozenset({"CronJob", "Job"}),
    **dict.fromkeys(("autoscaling", "extensions", "policy"), frozenset()),
    **dict.fromkeys(
        (
            *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io"),
            *("authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io"),
            *("flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io"),
            *("rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io"),
        ),
        frozenset(),
    ),
}
#: The owner whose pods Kueue queues one by one, as if they had none: it manages no such object, nor an owner of one.
_OF_SINGLE_PODS: Final = ("", "ReplicationController")
#: The owner whose pods may take devices; only kube-controller-manager creates its pods.
_PER_NODE: Final = ("apps", "DaemonSet")


def _name_of(owner: Object) -> tuple[str, str]:
    return str(owner.get("apiVersion") or "").rpartition("/")[0], str(owner.get("kind") or "")


def leaves_queue_to_pods(owner: Object) -> bool:
    """Return whether Kueue queues the pods of this owner one by one, since it manages no object above them."""
    return _name_of(owner) == _OF_SINGLE_PODS


class ServedKinds(NamedTuple):
    """The kinds that the cluster serves, by API group.

    Attributes:
        groups: the kinds of each group; None for a group whose kinds are unknown.
    """

    groups: Mapping[str, frozenset[str] | None]

    def may_own(self, owner: Object) -> bool:
        """Return whether an ownerReference may name the controller of a workload: the kind is served, and owns workloads."""
        group, kind = _name_of(owner)
        kinds = _OWNERS[group] if group in _OWNERS else self.groups.get(group, frozenset())
        return kinds is None or kind in kinds

    def may_come(self, owner: Object) -> bool:
        """Return whether the cluster may begin to serve the kind of an owner: its group is not one of Kubernetes itself."""
        return _name_of(owner)[0] not in _OWNERS


@dataclass(frozen=True, slots=True)
class OwnerDoubt:
    """The doubt about the owners that a caller names who is no known controller.

    Attributes:
        served: the kinds that the cluster serves.
        of_all: whether no owner counts at all.
    """

    served: ServedKinds
    of_all: bool = False

    def rejects(self, owner: Object) -> bool:
        """Return whether the object is judged as if it did not have this owner."""
        return self.of_all or not self.served.may_own(owner)

    def may_take_devices(self, owner: Object) -> bool:
        """Return whether a pod of this owner may be a part of the node stack all the same."""
        return _name_of(owner) != _PER_NODE

    def of_every_owner(self) -> Self:
        """Return the doubt by which no owner counts."""
        return replace(self, of_all=True)
