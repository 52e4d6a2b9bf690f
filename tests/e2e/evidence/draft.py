"""An object in the making: what its user sends, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.evidence.homes import HOMES, PLAIN, URGENT
from tests.e2e.evidence.world import POOLS, RUNTIME_CLASSES, texts_of
from tests.e2e.workloads import IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.evidence.world import Amounts, Pool

LABEL = "evidence"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
GROUP, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
FAST = "kueue.x-k8s.io/pod-group-fast-admission"
PATHS = {"Pod": "/api/v1/namespaces/{}/pods", "Group": "/api/v1/namespaces/{}/pods", "Job": "/apis/batch/v1/namespaces/{}/jobs"}
PATHS |= {kind: f"/apis/apps/v1/namespaces/{{}}/{kind.lower()}s" for kind in ("Deployment", "StatefulSet")}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_DEADLINE = 86_400


@dataclass
class Box:
    """A container: ``main``, ``init`` or ``sidecar``."""

    name: str
    role: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)

    def asked(self, resource: str, default: int = 0) -> int:
        """What counts: the request, or else the limit, or else what a LimitRange puts in."""
        return self.requests.get(resource, self.limits.get(resource, default))

    def manifest(self) -> dict[str, Any]:
        """The container."""
        stated = {"requests": texts_of(self.requests), "limits": texts_of(self.limits)}
        found: dict[str, Any] = {"name": self.name, "image": IMAGE, "resources": {key: one for key, one in stated.items() if one}}
        return found | ({"restartPolicy": "Always"} if self.role == "sidecar" else {})


@dataclass
class Draft:
    """An object that is drawn at random.

    Attributes:
        kind: that of a manifest, or ``Group``: ``count`` plain pods that are one group of Kueue.
        pool: the pool it is drawn for; ``reach`` names all that its selectors and tolerations let it onto, ``named`` all
            that its selectors of the pools' label do.
        count: how many pods it makes.
        boxes: init containers and sidecars in their order, then the others.
        spec: further fields of the pod spec: selectors, affinity, tolerations.
        pod_level: resources of the whole pod.
        topology: the label within one value of which Kueue must keep its pods; ``packed``: the scheduler, by affinity.
        fast: whether its group is counted from its first pod.
        joins: the group that its pods join, where they are no group of their own; ``says`` is the size they state.
        ends: whether its pods have a deadline; ``urgent``: whether they have a priority class.
        traits: words for what is special about it, to group disagreements by.
    """

    name: str
    kind: str
    pool: Pool
    count: int = 1
    namespace: str = PLAIN
    queue: str | None = None
    boxes: list[Box] = field(default_factory=list)
    spec: dict[str, Any] = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    runtime_class: str | None = None
    topology: str | None = None
    packed: str | None = None
    fast: bool = False
    parallel: bool = True
    joins: str | None = None
    says: int = 0
    ends: bool = False
    urgent: bool = False
    reach: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset(POOLS)
    traits: tuple[str, ...] = ()

    def manifests(self) -> list[dict[str, Any]]:
        """What its user sends: one object, or the pods of a group."""
        if self.kind != "Group":
            return [self.manifest()]
        return [self._as_pod(f"{self.name}-{number}") for number in range(self.count)]

    def manifest(self) -> dict[str, Any]:
        """The object as its user sends it."""
        if self.kind in {"Pod", "Group"}:
            return self._as_pod(self.name)
        labels = {LABEL: self.name}
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.namespace, "labels": self._labels()}
        annotations = {TOPOLOGY: self.topology} if self.topology else {}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": self._pod()}
        if self.kind == "Job":
            if self.count > 1:
                # Only of a gang that says so is it certain that its pods do not run in turns.
                metadata["annotations"] = {"gpugate.io/gang-size": str(self.count)}
            spec = {"parallelism": self.count, "completions": self.count, "backoffLimit": 0, "template": template}
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        spec = {"replicas": self.count, "selector": {"matchLabels": labels}, "template": template}
        if self.kind == "StatefulSet":
            spec |= {"serviceName": "evidence", "podManagementPolicy": "Parallel" if self.parallel else "OrderedReady"}
        return {"apiVersion": "apps/v1", "kind": self.kind, "metadata": metadata, "spec": spec}

    def _labels(self) -> dict[str, str]:
        return {LABEL: self.name} | ({QUEUE_LABEL: self.queue} if self.queue else {})

    def _as_pod(self, name: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace, "labels": self._labels()}
        annotations = {TOPOLOGY: self.topology} if self.topology else {}
        group = self.joins or (self.name if self.kind == "Group" else None)
        if group:
            metadata["labels"][GROUP] = group
            annotations[GROUP_SIZE] = str(self.says or self.count)
        if self.fast:
            annotations[FAST] = "true"
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"annotations": annotations}, "spec": self._pod()}

    def path(self) -> str:
        """Where it is sent."""
        return PATHS[self.kind].format(self.namespace)

    def _pod(self) -> dict[str, Any]:
        lasts = self.kind in {"Deployment", "StatefulSet"}
        found: dict[str, Any] = {"restartPolicy": "Always" if lasts else "Never", **self.spec}
        found["containers"] = [box.manifest() for box in self.boxes if box.role == "main"]
        first = [box.manifest() for box in self.boxes if box.role != "main"]
        found |= {"initContainers": first} if first else {}
        if self.packed:
            term = {"labelSelector": {"matchLabels": {LABEL: self.name}}, "topologyKey": self.packed}
            found["affinity"] = {**found.get("affinity", {}), "podAffinity": {_REQUIRED: [term]}}
        if self.pod_level:
            found["resources"] = {"requests": texts_of(self.pod_level), "limits": texts_of(self.pod_level)}
        found |= {"runtimeClassName": self.runtime_class} if self.runtime_class else {}
        found |= {"activeDeadlineSeconds": _DEADLINE} if self.ends else {}
        return found | ({"priorityClassName": URGENT} if self.urgent else {})

    def resources(self) -> list[str]:
        """Every resource that one of its containers names, with memory and CPU."""
        return sorted({"memory", "cpu", *(name for box in self.boxes for name in (*box.requests, *box.limits))})

    def default(self, resource: str) -> int:
        """What the LimitRange of its namespace gives a container that states none of the resource."""
        limits = HOMES[self.namespace].limits
        return limits.default.get(resource, 0) if limits else 0

    def overhead(self, resource: str) -> int:
        """What the runtime takes of each pod's node."""
        return RUNTIME_CLASSES[self.runtime_class].overhead.get(resource, 0) if self.runtime_class else 0

    def demand(self, resource: str) -> int:
        """What one pod asks of a node at its worst moment: the containers are started one by one, in order."""
        if resource in self.pod_level:
            return self.pod_level[resource] + self.overhead(resource)
        return self.requested(resource) + self.overhead(resource)

    def requested(self, resource: str) -> int:
        """What its containers request together."""
        default = self.default(resource)
        return self.peak(lambda box: box.asked(resource, default))

    def limited(self, resource: str) -> int:
        """What its containers are limited to together."""
        default = self.default(resource)
        return self.peak(lambda box: box.limits.get(resource, default))

    def peak(self, amount: Callable[[Box], int]) -> int:
        """The most that the containers hold at once: sidecars stay, init containers go, the others come last, together."""
        staying = worst = 0
        for box in self.boxes:
            if box.role == "init":
                worst = max(worst, staying + amount(box))
            else:
                staying += amount(box)
                worst = max(worst, staying)
        return worst
