"""Names of labels, annotations and fields that more than one module reads (Kubernetes 1.36, Kueue v0.15.0)."""

from typing import Final

HOSTNAME: Final = "kubernetes.io/hostname"
#: The label of a Namespace with its name, which the API sets.
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
#: The annotation of the mirror of a static pod, which the kubelet writes.
MIRROR: Final = "kubernetes.io/config.mirror"
#: Fields of node and pod affinity.
REQUIRED_AFFINITY: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_AFFINITY: Final = "preferredDuringSchedulingIgnoredDuringExecution"

#: Kueue's labels (``pkg/controller/constants``).
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
#: The label of objects and Workloads that MultiKueue copies into the cluster that runs them (``apis/kueue/v1beta2``).
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
#: The label that names an object's WorkloadPriorityClass.
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
#: Kueue's annotations.
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
