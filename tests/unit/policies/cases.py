"""Golden cases: one YAML file each, with what is given and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.gpu_usage import DeviceUse, Span, Usage
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.engine.engine import decide
from gpugate.policies.engine.exemptions import bound_without_exemption
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import clone
from gpugate.policies.kube.quantity import whole
from gpugate.policies.policy.models import API_VERSION, KIND, PolicySet, parse_policy
from gpugate.policies.rules.gangs.gang.pod_groups import manifest, plan
from gpugate.policies.rules.registry import RULES
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from gpugate.policies.workloads.workload import Workload

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SHARED_FACTS = GOLDEN / "_facts"
_KEYS = {"given", "old", "subresource", "params", "facts", "pending", "only", "mode", "phase", "exemptions", "usage", "wanted"}
_WANTED_KEYS = {"changed", "patch", "clean", "findings", "group"}
_FINDING_KEYS = {"rule", "reason", "path", "severity", "message", "message_has", "remedy", "remedy_has"}


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


@cache
def shared_facts(name: str) -> ClusterSnapshot:
    return snapshot_from_objects(read(SHARED_FACTS / f"{name}.yaml"))


@dataclass(frozen=True)
class Case:
    """One golden case, read and checked for slips of its writer."""

    path: Path
    content: dict[str, Any]

    @property
    def rule(self) -> str:
        return self.path.parent.name

    @property
    def wanted(self) -> dict[str, Any]:
        return dict(self.content["wanted"])

    @property
    def given(self) -> dict[str, Any]:
        return dict(clone(self.content["given"]))

    def snapshot(self) -> ClusterSnapshot:
        found = self._cluster()
        return found if "usage" not in self.content else replace(found, usage=self._usage())

    def _usage(self) -> Usage:
        """What is known of the devices that the given workload's pods hold."""
        root = self.given
        kind = kind_of(root["apiVersion"], root["kind"])
        assert kind is not None
        place = (kind.group, kind.kind, root["metadata"].get("namespace", "default"), root["metadata"]["name"])
        return Usage({place: tuple(device(**one) for one in self.content["usage"])})

    def _cluster(self) -> ClusterSnapshot:
        named = self.content.get("facts") or []
        if isinstance(named, str):
            return shared_facts(named)
        return snapshot_from_objects(named, dict.fromkeys(self.content.get("pending") or (), SyncState.PENDING))

    def bound(self) -> tuple[BoundRule, ...]:
        spec: dict[str, Any] = {"exemptions": {"rules": self.content.get("exemptions", [])}}
        mode = self.content.get("mode", "Enforce")
        spec["rules"] = {self.rule: {"mode": mode, **(self.content.get("params") or {})}}
        if not self.content.get("only", True):
            spec["mode"] = mode
        policy = parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "golden"}, "spec": spec})
        return PolicySet([policy]).bind({}, {})

    def workload(self, root: dict[str, Any], snapshot: ClusterSnapshot) -> Workload:
        """Open ``root`` as the case's request has it."""
        kind = kind_of(root["apiVersion"], root["kind"])
        assert kind is not None, f"{root['kind']} is in no table"
        old = self.content.get("old")
        return open_workload(
            kind,
            root,
            snapshot,
            operation="CREATE" if old is None else "UPDATE",
            old=clone(old),
            subresource=self.content.get("subresource", ""),
        )

    def decide(self, root: dict[str, Any]) -> Decision:
        """Decide on ``root``, which is edited in place."""
        snapshot = self.snapshot()
        return decide(self.workload(root, snapshot), self.bound(), snapshot, Phase[self.content.get("phase", "REVIEW")])

    def decided(self) -> tuple[Workload, ClusterSnapshot]:
        """Return the workload as the engine edits it, and the snapshot."""
        snapshot = self.snapshot()
        workload = self.workload(self.given, snapshot)
        decide(workload, self.bound(), snapshot, Phase.REVIEW)
        return workload, snapshot

    def pod_group(self, root: dict[str, Any]) -> dict[str, Any] | None:
        """The spec of the PodGroup that the controller makes for ``root`` as it was decided; None where it makes none."""
        kind = kind_of(root["apiVersion"], root["kind"])
        assert kind is not None
        workload = open_workload(kind, root, self.snapshot())
        wanted = plan(workload, bound_without_exemption(workload, self.bound(), "gang")).wanted
        return None if wanted is None else dict(manifest(wanted, "v1")["spec"])


def device(*, spans: dict[str, list[float | None]], memory: str = "", peak: str = "", **fields: Any) -> DeviceUse:
    """A device as a case states it: ``spans`` has the peak and the average by hours."""
    start = {"namespace": "default", "pod": "p", "container": "main", "node": "gpu-1", "number": "0", "uuid": "GPU-1"}
    sizes = {"memory": whole(memory) if memory else None, "memory_peak": whole(peak) if peak else None}
    times = tuple(Span(int(hours) * 3600, *figures) for hours, figures in spans.items())
    fields["held"] = fields.pop("hours", 1000) * 3600
    return DeviceUse(**{**start, "model": "NVIDIA A100-SXM4-80GB", **sizes, "spans": times, **fields})


def load(path: Path) -> Case:
    content = read(path)
    unknown = set(content) - _KEYS | set(content["wanted"]) - _WANTED_KEYS
    for finding in content["wanted"].get("findings") or []:
        unknown |= set(finding) - _FINDING_KEYS
    assert not unknown, f"{path.name}: no such key: {sorted(unknown)}"
    return Case(path, content)


def all_paths() -> list[Path]:
    return sorted(path for path in GOLDEN.glob("*/*.yaml") if path.parent != SHARED_FACTS)


def folders() -> set[str]:
    return {path.name for path in GOLDEN.iterdir() if path != SHARED_FACTS}


def rule_ids() -> set[str]:
    return {rule.id for rule in RULES}


def reasons_in(rule: Rule) -> set[str]:
    """The reasons that the rule declares."""
    return set(rule.reasons)


def without_record(root: dict[str, Any]) -> dict[str, Any]:
    """``root`` without the annotation in which the edits of a template are recorded, which has tests of its own."""
    copy: dict[str, Any] = clone(root)
    annotations = (copy.get("metadata") or {}).get("annotations")
    if isinstance(annotations, dict) and annotations.pop(ANNOTATION, None) is not None and not annotations:
        del copy["metadata"]["annotations"]
    return copy


def patch_without_record(patch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``patch`` without the operations that write that annotation."""
    kept = []
    for op in clone(patch):
        if op["path"] == f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}":
            continue
        if op["path"] == "/metadata/annotations" and op["value"].pop(ANNOTATION, None) is not None and not op["value"]:
            continue
        kept.append(op)
    return kept
