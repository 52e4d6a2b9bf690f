"""Edits of the rule `attribution`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import Path
from gpugate.policies.patch import Edit
from gpugate.policies.rules.ownership.attribution.keys import AttributionKey, fault_of, told_by, told_by_pods
from gpugate.policies.rules.ownership.attribution.params import AttributionParams
from gpugate.policies.workloads.workload import Workload


def applies(workload: Workload) -> bool:
    """Whether nobody was asked before: what a controller of a known kind makes has an owner who was."""
    return bool(workload.gpu_pod_sets()) and workload.owner_kind() is None


def mutate(workload: Workload, params: AttributionParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Write what is told in other words, in the template or by the namespace under the key's own name."""
    if not applies(workload):
        return ()
    return [edit for key in params.keys for edit in _edits(workload, key, snapshot)]


def _edits(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    told = told_by(workload, key, snapshot)
    if told is None or fault_of(key, told.value):
        return
    own = workload.labels() if key.kind == "Label" else workload.annotations()
    if not own.get(key.name):
        note = f"{key.what} {told.value}"
        yield Edit("set", key_path(key), told.value, f"{note} ({told.source})" if told.source else note)
    for pods in workload.pod_sets if key.to_pods and not workload.is_pod() else ():
        present = pods.labels() if key.kind == "Label" else pods.annotations()
        if pods.is_whole and not present.get(key.name):
            value = told_by_pods(pods, key) or told.value
            if not fault_of(key, value):
                yield Edit("set", pods.meta(key.holder, key.name), value, f"{key.what} {value} on its pods")


def key_path(key: AttributionKey) -> Path:
    """Return the path of the label or annotation in the object."""
    return ("metadata", key.holder, key.name)
