"""Compare pods with the budgets that they share: ResourceQuotas, and the flavors of a Kueue ClusterQueue.

Amounts are bytes, millicores or counts, by the budget's names.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload

#: Fields of a pod spec that, with its containers, decide its requests, its flavors, and which quotas count it.
_DECIDING: Final = (
    *("activeDeadlineSeconds", "affinity", "nodeSelector", "overhead", "priorityClassName"),
    *("resources", "runtimeClassName", "tolerations"),
)


class Budget(Protocol):
    """Resources that the pods of a namespace or queue share, for one workload."""

    @property
    def source(self) -> str:
        """Kind and name of the object that states the budget, for messages."""

    def count(self, pods: PodSet) -> int:
        """Return the number of pods that the budget counts at once; zero if unknown."""

    def applies(self, pods: PodSet) -> bool | None:
        """Return whether the budget counts the pods; None if unknown."""

    def charge(self, pods: PodSet) -> Mapping[str, int]:
        """Return the amounts that the budget counts for one pod.

        Raises:
            MalformedError: an amount is no quantity.
        """

    def total(self, name: str) -> int:
        """Return the maximum of resource ``name`` while nothing else uses the budget."""

    def available(self, name: str, in_flight: int) -> int:
        """Return the unused amount of resource ``name`` less ``in_flight``; never below zero."""


class Charge(NamedTuple):
    """The amounts that a budget counts for ``number`` equal pods; ``each``: for one of them."""

    number: int
    each: Mapping[str, int]

    def total(self, name: str) -> int:
        """Return the amount for all pods; zero for a resource that they do not request."""
        return self.number * self.each.get(name, 0)


def exceeds_ever(budget: Budget, charge: Charge) -> list[str]:
    """Return the resources of which ``budget`` can never have enough, sorted."""
    return sorted(name for name in charge.each if charge.total(name) > budget.total(name))


def waits_now(budget: Budget, charge: Charge, in_flight: Mapping[str, int]) -> list[str]:
    """Return the resources of which ``budget`` has too little now; ``in_flight``: admitted and not counted yet."""
    return [name for name in charge.each if charge.total(name) > budget.available(name, in_flight.get(name, 0))]


def exceeds_together(charges: Sequence[Charge], total: Callable[[str], int]) -> str | None:
    """Return a resource of which several pod sets together request more than ``total``, accelerators first."""
    names = {name for charge in charges for name in charge.each}
    for name in sorted(names, key=lambda name: (not is_accelerator(name.removeprefix("requests.")), name)):
        amounts = [charge.total(name) for charge in charges if charge.each.get(name)]
        if len(amounts) > 1 and sum(amounts) > total(name):
            return name
    return None


def show_sum(name: str, each: int, number: int, qualifier: str = "") -> str:
    """Return the requests of ``number`` pods as text: ``4 pods x 8 = 32 of nvidia.com/gpu``; ``qualifier`` follows ``pods``."""
    if number == 1:
        return f"{show_amount(name, each)} of {name}"
    return f"{number} pods{qualifier} x {show_amount(name, each)} = {show_amount(name, each * number)} of {name}"


def pod_fingerprint(workload: Workload, pods: PodSet) -> Hashable | None:
    """Return a key that pods of one namespace share if every budget treats them the same, their number aside.

    Pods of a gang, replicas of a Deployment and most Jobs of a team share it: it has names and order of the containers, but no
    images and commands. None for pods without a short key.
    """
    stated = [(key, value) for key in _DECIDING if (value := pods.spec.get(key)) is not None]
    deciding = memo_key([[container.name for container in pods.containers], stated])
    kind = workload.kind
    # Pods whose containers state the same share one totals object.
    return None if deciding is None else (workload.namespace, kind.group, kind.kind, pods.path, pods.totals, deciding)
