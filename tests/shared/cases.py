"""Golden cases: what is given to a rule and what is wanted of it, in ``tests/rules/<theme>/<rule>/cases/*.yaml``.

``tests/README.md`` describes the files. A case is expanded when it is read: what it takes from a base, from its overlays and from
the defaults of its file is in ``Case.content`` as if it were written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.gpu_usage import DeviceUse, Span, Usage
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.engine.engine import decide
from gpugate.policies.engine.exemptions import bound_without_exemption
from gpugate.policies.findings import Severity
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import clone
from gpugate.policies.kube.quantity import whole
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.policy.profiles import OFFLINE
from gpugate.policies.rules.gangs.gang.pod_groups import manifest, plan
from gpugate.policies.rules.registry import RULES
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from gpugate.policies.workloads.workload import Workload
from tests.shared.overlays import overlaid
from tests.shared.paths import ROOT
from tests.shared.yaml_files import read

_TESTS = ROOT / "tests"
CLUSTERS = _TESTS / "shared" / "clusters"
SHARED_BASES = _TESTS / "shared" / "bases.yaml"
_DEFAULTS = "defaults"
_SEVERITIES = {severity.value for severity in Severity}
#: What a case says of how it is decided; it is in ``Case.content`` as it is written.
_SETTINGS = {"params", "pending", "only", "mode", "phase", "exemptions", "profile", "usage", "subresource"}
#: Where the object comes from: it is created as ``given``, or it is updated from ``old``, or it is a base.
_OBJECTS = {"base", "given", "old"}
_KEYS = {*_SETTINGS, *_OBJECTS, "facts", "with", "update", "wanted"}
_WANTED_KEYS = {"changes", "patch", "clean", "findings", "group"}
_FINDING_KEYS = {"rule", "message", "message_has", "remedy", "remedy_has"}
_OPERATIONS = {"add", "replace", "remove"}


def folder_of(rule: Rule) -> Path:
    """Return the folder of the rule's cases and tests, which mirrors the module or package of the rule."""
    theme, name = rule.params.__module__.partition(".rules.")[2].split(".")[:2]
    return _TESTS / "rules" / theme / name


@cache
def bases_of(rule: Rule) -> dict[str, Any]:
    """Return the objects that cases of the rule begin with, by name: the shared ones and the rule's own."""
    shared, own = read(SHARED_BASES), folder_of(rule) / "bases.yaml"
    named = read(own) if own.exists() else {}
    assert not set(shared) & set(named), f"{own}: a base of that name is shared: {sorted(set(shared) & set(named))}"
    return {**shared, **named}


def cluster(name: str) -> list[Any]:
    """Return the objects of a shared cluster."""
    return list(read(CLUSTERS / f"{name}.yaml"))


@cache
def shared_snapshot(name: str) -> ClusterSnapshot:
    return snapshot_from_objects(cluster(name))


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every golden case, by rule and name."""
    return tuple(sorted((case for rule in RULES for case in _cases_of(rule)), key=lambda case: (case.rule, case.name)))


def cases_of(rule: str) -> list[Case]:
    return [case for case in all_cases() if case.rule == rule]


def _cases_of(rule: Rule) -> Iterator[Case]:
    names: set[str] = set()
    for file in sorted((folder_of(rule) / "cases").glob("*.yaml")):
        listed = dict(read(file))
        defaults = listed.pop(_DEFAULTS, {})
        assert listed, f"{file}: no case"
        assert not names & set(listed), f"{file}: another file has a case of that name: {sorted(names & set(listed))}"
        names |= set(listed)
        for name, stated in listed.items():
            try:
                yield Case(rule.id, name, file, expanded(stated, defaults, bases_of(rule)))
            except (AssertionError, KeyError, TypeError, ValueError) as error:
                raise AssertionError(f"{file}: {name}: {error}") from error


def expanded(stated: dict[str, Any], defaults: dict[str, Any], bases: dict[str, Any]) -> dict[str, Any]:
    """Return a case with all that it takes from elsewhere: ``given``, ``old`` where it is an update, ``wanted`` and settings.

    Args:
        stated: the case as its file states it.
        defaults: what holds for each case of the file that does not state it.
        bases: the objects that may be named, by name.
    """
    unknown = {*stated, *defaults} - _KEYS
    assert not unknown, f"no such key: {sorted(unknown)}"
    assert not {"wanted", "with", "update"} & set(defaults), "a default is no part of an object and not what is wanted"
    if set(stated) & _OBJECTS:
        defaults = {key: value for key, value in defaults.items() if key not in _OBJECTS}
    case = {**defaults, **stated}
    content = {key: value for key, value in case.items() if key in _SETTINGS}
    if "facts" in case:
        content["facts"] = case["facts"] if isinstance(case["facts"], str) else [_with_base(one, bases) for one in case["facts"]]
    (source,) = set(case) & _OBJECTS
    assert source == "base" or "with" not in case, "an overlay without a base"
    assert source != "old" or "update" in case, "an old object without an update"
    start = _with_base(case, bases) if source == "base" else case[source]
    if "update" in case:
        assert source != "given", "write old for what is updated"
        content["old"] = start
        start = overlaid(start, case["update"])
    content["given"] = start
    content["wanted"] = _wanted(case["wanted"], start)
    return content


def _with_base(stated: dict[str, Any], bases: dict[str, Any]) -> Any:
    """Return the object that ``stated`` describes by a base and an overlay; itself where it names no base."""
    if "base" not in stated:
        return stated
    assert stated["base"] in bases, f"there is no base {stated['base']}"
    return overlaid(bases[stated["base"]], stated.get("with", {}))


def _wanted(stated: Any, given: Any) -> dict[str, Any]:
    """Return what is wanted, with ``changed`` as the whole object and the findings by key."""
    if stated == "clean":
        return {"clean": True}
    wanted: dict[str, Any] = {"clean": True, "findings": stated} if isinstance(stated, list) else dict(stated)
    unknown = set(wanted) - _WANTED_KEYS
    assert not unknown, f"nothing is wanted by {sorted(unknown)}"
    assert len({"changes", "patch", "clean"} & set(wanted)) == 1, "a case wants one of: changes, patch, clean"
    assert wanted.get("clean", True) is True, "clean is true or not stated"
    if "changes" in wanted:
        wanted["changed"] = overlaid(given, wanted.pop("changes"))
    if "patch" in wanted:
        wanted["patch"] = [_operation(one) for one in wanted["patch"]]
    if "findings" in wanted:
        assert wanted["findings"], "a list of no findings"
        wanted["findings"] = [_finding(one) for one in wanted["findings"]]
    return wanted


def _operation(stated: dict[str, Any]) -> dict[str, Any]:
    """Return an operation of a JSON Patch; a case writes ``add: /path`` for its ``op`` and ``path``."""
    (op,) = set(stated) & _OPERATIONS
    assert set(stated) == ({op} if op == "remove" else {op, "value"}), f"not an operation of a patch: {stated}"
    return {"op": op, "path": stated[op]} | ({"value": stated["value"]} if "value" in stated else {})


def _finding(stated: dict[str, Any]) -> dict[str, Any]:
    """Return a finding by key; a case writes ``deny: Reason at path`` for its severity, reason and path."""
    (severity,) = set(stated) & _SEVERITIES
    unknown = set(stated) - _FINDING_KEYS - {severity}
    assert not unknown, f"a finding has no {sorted(unknown)}"
    reason, _, path = stated[severity].partition(" at ")
    rest = {key: value for key, value in stated.items() if key != severity}
    return {"reason": reason, "path": path, "severity": severity, **rest}


@dataclass(frozen=True)
class Case:
    """A golden case.

    Attributes:
        rule: the id of the rule.
        name: what the case shows, in words.
        file: where it is written.
        content: the case, expanded: ``given``, ``wanted``, ``old`` where it is an update, ``facts`` and settings.
    """

    rule: str
    name: str
    file: Path
    content: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.rule}/{self.name}"

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
            assert "pending" not in self.content, "what a shared cluster holds is known"
            return shared_snapshot(named)
        return snapshot_from_objects(named, dict.fromkeys(self.content.get("pending") or (), SyncState.PENDING))

    def bound(self) -> tuple[BoundRule, ...]:
        profile = self.content.get("profile", OFFLINE)
        spec: dict[str, Any] = {"profile": profile, "exemptions": {"rules": self.content.get("exemptions", [])}}
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
