"""Sum up the requests of an admitted object for as long as no watch shows it."""

from gpugate.policies.cluster.in_flight import Admitted
from gpugate.policies.cluster.records.pod_groups import group_key
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.workload import Workload


def in_flight_entry(workload: Workload) -> Admitted | None:
    """Return the entry for ``workload``, just admitted.

    None for a kind that creates no pods now (a CronJob), and for an object of a controller: its owner was counted.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if workload.kind.scheduled or workload.controller() is not None:
        return None
    total, requests = 0, {"cpu": 0, "memory": 0}
    for pods in workload.pod_sets:
        count = pods.count or 0
        if not count:
            continue
        demand = pod_requests(pods)
        total += count
        requests["cpu"] += demand.cpu * count
        requests["memory"] += demand.memory * count
        for name, devices in demand.devices.items():
            requests[name] = requests.get(name, 0) + devices * count
    if not total:
        return None
    group = None
    if workload.is_pod():
        group = group_key(workload.labels(), workload.annotations(), workload.pod_sets[0].spec)
    name, queue = workload.name, queue_label(workload) or ""
    return Admitted(workload.kind.kind, workload.namespace, name, total, queue, group, requests)
