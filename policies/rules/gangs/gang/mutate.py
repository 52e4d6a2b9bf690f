"""Edits of the rule `gang`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import GANG_NAME, Gang, gang_of, invalid_size, is_elastic, min_size
from gpugate.policies.patch import Edit
from gpugate.policies.rules.gangs.gang.params import GangParams
from gpugate.policies.rules.gangs.gang.schedulers import (
    mark_for_coscheduling,
    mark_for_kai,
    mark_for_kubernetes,
    mark_for_kueue,
    mark_for_volcano,
)
from gpugate.policies.workloads.workload import Workload


def mutate(workload: Workload, params: GangParams, _facts: ClusterSnapshot) -> Iterator[Edit]:
    """Mark the gang for the policy's scheduler."""
    if invalid_size(workload) is not None:
        return
    gang = gang_of(workload)
    if gang is None or workload.kind.scheduled or (workload.is_pod() and workload.controller() is not None):
        return
    if workload.is_child() or gang.gangs > 1:
        # What it is a part of was marked; a group for each of several gangs is their controller's to make.
        return
    if not has_its_size(workload, gang):
        return
    name = workload.annotation(GANG_NAME) or ("" if workload.is_pod() else workload.name)
    if params.scheduler == "Kueue":
        yield from mark_for_kueue(workload, gang, name)
    elif params.scheduler == "KAI":
        yield from mark_for_kai(workload, gang, params.kai_queue, params.scheduler_name)
    elif not workload.kind.groups_itself:
        # A second group beside the operator's own would hold the same pods twice.
        yield from _mark_with_group(workload, gang, name, params)


def _mark_with_group(workload: Workload, gang: Gang, name: str, params: GangParams) -> Iterator[Edit]:
    """Mark the gang for a scheduler that reads PodGroups."""
    if params.scheduler == "Coscheduling":
        yield from mark_for_coscheduling(gang, name, params.scheduler_name)
    elif params.scheduler == "Volcano":
        yield from mark_for_volcano(workload, gang, name, params.scheduler_name, with_group=params.pod_groups == "Create")
    elif params.scheduler == "Kubernetes":
        yield from mark_for_kubernetes(gang, name, params.scheduler_name)


def has_its_size(workload: Workload, gang: Gang) -> bool:
    """Whether the workload makes as many pods as the gang has; one that is elastic may make fewer, or more."""
    if gang.members is None or gang.size in gang.sizes:
        return True
    return is_elastic(workload) and gang.members >= min_size(workload, gang.size)
