"""The queues of the evidence: ClusterQueues in trees of cohorts, and what each of them could ever grant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.e2e.controlplane.nodes import GPU_TAINT
from tests.e2e.evidence.homes import LIMITS, QUEUES
from tests.e2e.evidence.world import BLOCK, GIB, GPU, POOL, POOLS, RACK, SPOT_TAINT, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.evidence.world import Pool


@dataclass(frozen=True)
class Quota:
    """What is granted of one resource; None is no limit."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True)
class Holder:
    """A Cohort or ClusterQueue.

    Attributes:
        flavors: its quotas by flavor, in the order in which Kueue tries them.
        namespace: the only one that it admits from; None for any.
    """

    name: str
    flavors: Mapping[str, Mapping[str, Quota]]
    parent: str | None = None
    is_cohort: bool = False
    topology: bool = False
    namespace: str | None = None

    @property
    def role(self) -> str:
        """What it is called in every tree."""
        return self.name[3:].rpartition("-")[0]

    @property
    def covered(self) -> list[str]:
        """The resources that it has quota for."""
        return list(next(iter(self.flavors.values())))

    def manifest(self) -> dict[str, Any]:
        """The object, as its administrator writes it."""
        flavors = [{"name": flavor, "resources": _entries(quotas)} for flavor, quotas in self.flavors.items()]
        spec: dict[str, Any] = {"resourceGroups": [{"coveredResources": self.covered, "flavors": flavors}]}
        if self.is_cohort:
            spec |= {"parentName": self.parent} if self.parent else {}
            return _kueue("Cohort", self.name, spec)
        spec |= {"cohortName": self.parent} if self.parent else {}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}} if self.namespace else {}
        return _kueue("ClusterQueue", self.name, {**spec, "namespaceSelector": selector})


def _entries(quotas: Mapping[str, Quota]) -> list[dict[str, str]]:
    found = []
    for resource, quota in quotas.items():
        entry = {"name": resource, "nominalQuota": text_of(resource, quota.nominal)}
        if quota.borrowing is not None:
            entry["borrowingLimit"] = text_of(resource, quota.borrowing)
        if quota.lending is not None:
            entry["lendingLimit"] = text_of(resource, quota.lending)
        found.append(entry)
    return found


def _all(gpus: Quota, nodes: int, pool: Pool) -> dict[str, Quota]:
    """A quota of GPUs with as much memory and CPU as ``nodes`` machines of the pool have."""
    return {GPU: gpus, "memory": Quota(nodes * pool.room["memory"]), "cpu": Quota(nodes * pool.room["cpu"])}


#: How often every queue is there, so that this many of its users can be tried at once.
TREES = 3


def _tree(number: int) -> list[Holder]:
    """org lends to west and east below it; alpha may borrow little, beta and gamma keep some of their own."""
    h100, a100, spot = POOLS["h100"], POOLS["a100"], POOLS["spot"]
    org, west, east = (f"ev-{name}-{number}" for name in ("org", "west", "east"))
    alone = {GPU: Quota(4), "memory": Quota(512 * GIB), "cpu": Quota(48_000)}
    return [
        Holder(org, {"ev-h100": _all(Quota(4), 1, h100)}, is_cohort=True),
        Holder(west, {"ev-h100": _all(Quota(0, borrowing=6), 1, h100)}, org, is_cohort=True),
        Holder(east, {"ev-h100": _all(Quota(2, lending=3), 1, h100)}, org, is_cohort=True),
        Holder(f"ev-alpha-{number}", {"ev-h100": _all(Quota(8, borrowing=4), 1, h100)}, west),
        Holder(f"ev-beta-{number}", {"ev-h100": _all(Quota(8, lending=2), 1, h100)}, west),
        Holder(f"ev-gamma-{number}", {"ev-h100": _all(Quota(8, lending=4), 1, h100)}, east),
        Holder(f"ev-alone-{number}", {"ev-a100": alone}),
        Holder(f"ev-gpus-only-{number}", {"ev-a100": {GPU: Quota(16)}}),
        Holder(f"ev-racks-{number}", {"ev-racked": _all(Quota(48), 6, h100)}, topology=True),
        Holder(f"ev-two-{number}", {"ev-a100": _all(Quota(4), 1, a100), "ev-h100": _all(Quota(16), 2, h100)}),
        Holder(f"ev-spot-{number}", {"ev-spot": _all(Quota(16), 2, spot)}),
        Holder(f"ev-groups-{number}", {"ev-a100": _all(Quota(64), 8, a100)}),
        Holder(f"ev-others-{number}", {"ev-a100": alone}, namespace="ev-elsewhere"),
    ]


HOLDERS: Mapping[str, Holder] = {one.name: one for number in range(1, TREES + 1) for one in _tree(number)}
CLUSTER_QUEUES = tuple(holder for holder in HOLDERS.values() if not holder.is_cohort)
#: By flavor.
FLAVOR_POOL: Mapping[str, str] = {"ev-h100": "h100", "ev-a100": "a100", "ev-racked": "h100", "ev-spot": "spot"}


def root_of(queue: str) -> str:
    """The topmost cohort of a ClusterQueue, or the queue itself."""
    holder = HOLDERS[queue]
    while holder.parent:
        holder = HOLDERS[holder.parent]
    return holder.name


def most(queue: str, resource: str, flavor: str | None = None) -> int:
    """The most of a resource that one workload in the ClusterQueue can ever be granted: its own, and all it could borrow.

    The documentation of Kueue's Cohorts states it so: what a member does not lend stays its own; the rest of the tree's
    quota may be borrowed, up to the borrowing limits of the member and of every Cohort above it.
    """
    holder = HOLDERS[queue]
    flavor = flavor or next(iter(holder.flavors))
    quota = _quota(holder, resource, flavor)
    own = _pot(holder, resource, flavor)
    if holder.parent is None:
        return own
    reach = own - _lent(holder, resource, flavor) + most(holder.parent, resource, flavor)
    return reach if quota.borrowing is None else min(reach, own + quota.borrowing)


def _quota(holder: Holder, resource: str, flavor: str) -> Quota:
    return holder.flavors.get(flavor, {}).get(resource, Quota(0))


def _pot(holder: Holder, resource: str, flavor: str) -> int:
    """What the holder and those below it put together."""
    members = [one for one in HOLDERS.values() if one.parent == holder.name]
    return _quota(holder, resource, flavor).nominal + sum(_lent(one, resource, flavor) for one in members)


def _lent(holder: Holder, resource: str, flavor: str) -> int:
    """What of that the holder lends to its parent at the most."""
    quota, pot = _quota(holder, resource, flavor), _pot(holder, resource, flavor)
    return pot if quota.lending is None else min(pot, quota.lending)


def _kueue(kind: str, name: str, spec: Mapping[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def objects() -> list[dict[str, Any]]:
    """All of them, in the order in which they are made."""
    levels = [{"nodeLabel": label} for label in (BLOCK, RACK, "kubernetes.io/hostname")]
    found = [_kueue("Topology", "ev-topology", {"levels": levels})]
    for flavor, pool in FLAVOR_POOL.items():
        spec: dict[str, Any] = {"nodeLabels": {POOL: pool}, "tolerations": [{"key": GPU, "operator": "Exists"}]}
        if flavor == "ev-racked":
            spec["topologyName"] = "ev-topology"
        if flavor == "ev-spot":
            spec["nodeTaints"] = [dict(GPU_TAINT), dict(SPOT_TAINT)]
        found.append(_kueue("ResourceFlavor", flavor, spec))
    found += [holder.manifest() for holder in HOLDERS.values()]
    found += [_kueue("LocalQueue", one.name, {"clusterQueue": one.name}, QUEUES) for one in CLUSTER_QUEUES]
    return [*found, *(_kueue("LocalQueue", one.name, {"clusterQueue": one.name}, LIMITS) for one in CLUSTER_QUEUES)]
