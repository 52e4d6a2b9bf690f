"""What the real components say about the objects: pods, Kueue's Workloads, events."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.e2e.evidence.draft import LABEL

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.evidence.draft import Draft

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"
WORKLOADS_IN = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
_EVENTS = [f"/api/v1/events?fieldSelector=reason%3D{reason}" for reason in ("FailedCreate", "ExcessPodDeleted")]


@dataclass
class Seen:
    """What is to be seen of one object.

    Attributes:
        pods: those that it has, and that are not being deleted.
        workloads: Kueue's, made for it or for its pods.
        events: texts of its events about pods that could not be made, or were too many.
        log: lines of Kueue's log that name it, of groups whose members differ.
    """

    pods: list[dict[str, Any]] = field(default_factory=list)
    workloads: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def running(self) -> int:
        """How many of its pods run on a node."""
        return sum(1 for pod in self.pods if pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName"))

    def unscheduled(self) -> list[str]:
        """What the scheduler says of its pods that it placed nowhere."""
        found = [_condition(pod, "PodScheduled") for pod in self.pods]
        return [one["message"] for one in found if one.get("reason") == "Unschedulable" and one["status"] == "False"]

    def not_admitted(self) -> list[str]:
        """What Kueue says of its Workloads that have no quota."""
        found = [_condition(workload, "QuotaReserved") for workload in self.workloads]
        return [one["message"] for one in found if one.get("status") == "False"]

    def admitted(self) -> bool:
        """Whether Kueue admitted one of its Workloads."""
        return any(_condition(workload, "Admitted").get("status") == "True" for workload in self.workloads)

    def story(self) -> str:
        """All of it, in a few lines."""
        lines = [f"{self.running} of {len(self.pods)} pods run"]
        lines += [f"scheduler: {one}" for one in sorted(set(self.unscheduled()))]
        lines += [f"kueue: {one}" for one in sorted(set(self.not_admitted()))]
        return "\n    ".join([*lines, *(f"event: {one}" for one in sorted(set(self.events))[:2])])


def _condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    for one in obj.get("status", {}).get("conditions", []):
        if one["type"] == kind:
            found: dict[str, Any] = one
            return found
    return {}


def look(cluster: ControlPlane, drafts: list[Draft]) -> dict[str, Seen]:
    """What is to be seen of these objects now, by name."""
    found: dict[str, Seen] = defaultdict(Seen)
    for pod in cluster.request("GET", f"/api/v1/pods?labelSelector={LABEL}").body["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            found[pod["metadata"]["labels"][LABEL]].pods.append(pod)
    if any(draft.queue for draft in drafts):
        for workload in cluster.request("GET", WORKLOADS).body["items"]:
            for owner in workload["metadata"].get("ownerReferences", []):
                found[base_of(owner["name"])].workloads.append(workload)
    for path in _EVENTS:
        for event in cluster.request("GET", path).body["items"]:
            found[base_of(event["involvedObject"]["name"])].events.append(event["message"])
    joining = [draft.name for draft in drafts if draft.joins]
    lines = differing_groups(cluster) if joining else []
    for name in joining:
        found[name].log = [line for line in lines if name in line]
    return {draft.name: found[draft.name] for draft in drafts}


def differing_groups(cluster: ControlPlane) -> list[str]:
    """What Kueue's log says of groups whose members do not agree."""
    log = (cluster.run_dir / "logs" / "kueue.log").read_text(errors="replace")
    return [line for line in log.splitlines() if "has different" in line]


def base_of(name: str) -> str:
    """The name of the object that a thing of this name was made for: drafts have no dash in their names."""
    return name.partition("-")[0]
