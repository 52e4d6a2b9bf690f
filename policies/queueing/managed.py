"""Which objects Kueue manages: by its Configuration, the kinds of its integrations in the namespaces that it selects.

Kueue v0.15.0: ``pkg/controller/jobframework``, ``apis/config/v1beta2``. Its webhook suspends a Job that names a queue in every
namespace, and its controller never looks at one in a namespace that ``managedJobsNamespaceSelector`` does not select: such a Job
hangs, without a Workload. Pods in such a namespace, and objects of a kind whose integration is off, run as if they named no queue.
"""

from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import Selector
from gpugate.policies.cluster.records.kueue import KueueConfiguration
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.names import NAMESPACE_NAME
from gpugate.policies.workloads.kinds import KINDS
from gpugate.policies.workloads.workload import Workload

#: The integrations of a Configuration that names none.
_BY_DEFAULT: Final = frozenset({"batch/job"})
#: The integration of pods.
_PODS: Final = next(kind.framework for kind in KINDS if kind.is_pod)
#: The integrations that need the integration of pods, which Kueue then enables, too (``ImplicitlyEnabledFrameworkNames``).
_ENABLING_PODS: Final = frozenset(kind.framework for kind in KINDS if kind.framework and kind.serving)
#: What holds where the Configuration is unknown: most Configurations leave the namespaces of the control plane out.
_UNKNOWN: Final = KueueConfiguration()


class Unmanaged(NamedTuple):
    """Why Kueue does not manage an object: a sentence without its full stop, and a remedy.

    ``suspends``: whether Kueue all the same suspends an object that names a queue.
    """

    why: str
    remedy: str
    suspends: bool


def is_managed(workload: Workload, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether Kueue manages the object; None if that depends on facts that are unknown."""
    if why_unmanaged(workload, snapshot) is not None:
        return False
    kueue = snapshot.kueue
    if kueue is None:
        return True if workload.kind.framework in _BY_DEFAULT else None
    return True if selects(kueue.namespaces, workload.namespace, snapshot) else None


def why_unmanaged(workload: Workload, snapshot: ClusterSnapshot) -> Unmanaged | None:
    """Return why Kueue does not manage the object; None if it does, or if that depends on facts that are unknown."""
    kind, kueue = workload.kind, snapshot.kueue
    if not kind.framework:
        return Unmanaged(f"Kueue has no integration for a {kind.kind}", "Use a kind that Kueue manages.", suspends=False)
    if kueue is not None and not _is_integrated(workload, kueue):
        return Unmanaged(
            f"Kueue's Configuration does not enable the integration {kind.framework}",
            f"Add {kind.framework} to integrations.frameworks in Kueue's Configuration, or remove the queue name.",
            suspends=False,
        )
    if selects((kueue or _UNKNOWN).namespaces, workload.namespace, snapshot) is False:
        return Unmanaged(
            f"managedJobsNamespaceSelector in Kueue's Configuration does not select namespace {workload.namespace}",
            "Remove the queue name, or let managedJobsNamespaceSelector select the namespace.",
            suspends=not workload.is_pod(),
        )
    return None


def _is_integrated(workload: Workload, kueue: KueueConfiguration) -> bool:
    kind, frameworks = workload.kind, kueue.frameworks or _BY_DEFAULT
    if kind.framework in frameworks or (kind.group, kind.kind) in kueue.external:
        return True
    return kind.framework == _PODS and not _ENABLING_PODS.isdisjoint(frameworks)


def selects(selector: Selector, namespace: str, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether ``selector`` selects the namespace; None if that depends on labels that are unknown."""
    labels = snapshot.namespace_labels(namespace)
    if namespace in snapshot.namespaces or all(expression.key == NAMESPACE_NAME for expression in selector.expressions):
        return selector.matches(labels)
    return None
