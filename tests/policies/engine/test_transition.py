"""The two tables in the docstring of the transition say what is done on an UPDATE: each row is compared with real objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule, no_edits
from gpugate.policies.kube.fields import clone, lookup
from gpugate.policies.patch import Edit
from gpugate.policies.workloads import open as opening
from gpugate.policies.workloads import transition
from gpugate.policies.workloads.metadata import copy_to_template
from gpugate.policies.workloads.recorded_edits import recorded
from tests.shared.builders import container, decided, opened, pod, templated

Root = dict[str, Any]
#: An annotation that the rule `spot` reads.
_TRIGGER = "gpugate.io/spot"
_MEMORY = ("spec", "containers", 0, "resources", "limits", "memory")


class _Amounts(Params):
    memory: str
    """Memory limit of each container."""
    toleration: str
    """Key of a toleration of each pod."""


def _edit_again(workload: Any, params: _Amounts, _snapshot: Any) -> Iterator[Edit]:
    for pods in workload.pod_sets:
        if not lookup(pods.root, _MEMORY):
            yield Edit("set", (*pods.path, *_MEMORY), params.memory, "memory")
        if all(present["key"] != params.toleration for present in pods.spec.get("tolerations", ())):
            yield Edit("append", pods.field("tolerations"), {"key": params.toleration, "operator": "Exists"}, "toleration")
        yield from copy_to_template(workload, pods, [_TRIGGER])


def _edit_once(_workload: Any, params: _Amounts, _snapshot: Any) -> Iterator[Edit]:
    yield Edit("set", ("metadata", "labels", "edited-under"), params.memory, "label")


def _rule(name: str, **fields: Any) -> Rule:
    return Rule(**{"id": name, "title": name, "since": "0.1.0", "params": _Amounts, "check": lambda *_: (), **fields})


def _bound(*rules: Rule, memory: str = "32Gi", toleration: str = "first") -> tuple[BoundRule, ...]:
    return tuple(BoundRule(rule, _Amounts(memory=memory, toleration=toleration), Mode.ENFORCE) for rule in rules)


_EDITING = (_rule("again", mutate=_edit_again), _rule("once", mutate=_edit_once, on_update=False))


def _tables() -> list[dict[str, tuple[str, ...]]]:
    """The rows of each table in the docstring, by their first cell."""
    tables: list[dict[str, tuple[str, ...]]] = []
    for paragraph in (transition.__doc__ or "").split("\n\n"):
        if paragraph.startswith("|"):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in paragraph.strip().splitlines()[2:]]
            tables.append({row[0]: tuple(row[1:]) for row in rows})
    return tables


_EDITS, _FINDINGS = _tables()


def _ray(**spec: Any) -> Root:
    """A RayCluster with two templates, which the API lets users change."""
    head = {"template": {"metadata": {}, "spec": {"containers": [container(memory=None, image="a")]}}}
    worker = {"groupName": "workers", "replicas": 4, "template": clone(head["template"])}
    metadata = {"name": "w", "namespace": "team-a", "annotations": {_TRIGGER: "required"}}
    spec = {"suspend": False, "headGroupSpec": head, "workerGroupSpecs": [worker], **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def _annotated(root: Root) -> Root:
    root["metadata"].setdefault("annotations", {})[_TRIGGER] = "required"
    return root


def _worker(root: Root) -> Root:
    spec: Root = root["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return spec


def _unchanged(root: Root) -> None:
    root["metadata"]["resourceVersion"] = "2"


def _relabelled(root: Root) -> None:
    root["metadata"]["labels"] = {"team": "b"}


def _another_image(root: Root) -> None:
    root["spec"]["template"]["spec"]["containers"][0]["image"] = "other"


def _resumed_on_a_flavor(root: Root) -> None:
    root["spec"]["suspend"] = False
    _worker(root)["nodeSelector"] = {"pool": "a"}


def _other_word(root: Root) -> None:
    root["metadata"]["annotations"][_TRIGGER] = "never"


def _two_gpus(root: Root) -> None:
    _worker(root)["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2


def _worker_image(root: Root) -> None:
    _worker(root)["containers"][0]["image"] = "other"


def _scaled(root: Root) -> None:
    root["spec"]["workerGroupSpecs"][0]["replicas"] = 8


def _from_another_cluster(root: Root) -> Root:
    root["metadata"]["labels"] = {"kueue.x-k8s.io/multikueue-origin": "manager"}
    return root


def _job() -> Root:
    return _annotated(templated("Job", container(memory=None, image="a"), parallelism=1))


#: For each row what Git states, what the request then changes of it, and the subresource.
_EDIT_CASES: list[tuple[str, Root, Callable[[Root], None], str]] = [
    ("changes no spec, label or annotation", _job(), _unchanged, ""),
    (
        "is of a Pod, of a subresource, or of an object that Kueue compares with another",
        _annotated(pod(container(memory=None))),
        _relabelled,
        "",
    ),
    ("is of a Pod, of a subresource, or of an object that Kueue compares with another", _ray(), _worker_image, "scale"),
    (
        "is of a Pod, of a subresource, or of an object that Kueue compares with another",
        _from_another_cluster(_ray()),
        _worker_image,
        "",
    ),
    ("is of a kind with immutable templates", _job(), _another_image, ""),
    ("is of a kind with immutable templates", _job(), _relabelled, ""),
    ("suspends, resumes or places a workload for Kueue, with the same requests", _ray(suspend=True), _resumed_on_a_flavor, ""),
    ("changes an annotation that a rule reads", _ray(), _other_word, ""),
    ("changes resources or placement in a template", _ray(), _two_gpus, ""),
    ("changes another field of a template", _ray(), _worker_image, ""),
    ("leaves the templates unchanged", _ray(), _scaled, ""),
    ("leaves the templates unchanged", _ray(), _relabelled, ""),
]


def _live(git: Root) -> Root:
    """The object that a CREATE of ``git`` makes; a copy from another cluster has the record that it got there."""
    live = clone(git)
    labels = live["metadata"].pop("labels", None)
    decided(live, _bound(*_EDITING))
    live["metadata"].setdefault("labels", {}).update(labels or {})
    return live


def _reapplied(root: Root, subresource: str) -> str:
    """Which of the edits recorded at CREATE are in ``root`` again."""
    pod_sets = opened(root, subresource=subresource).pod_sets
    in_specs = [lookup(pods.root, _MEMORY) == "32Gi" and _tolerates(pods.root, "first") for pods in pod_sets]
    elsewhere = root["metadata"].get("labels", {}).get("edited-under") == "32Gi"
    copied = [pods.annotations().get(_TRIGGER) == "required" for pods in pod_sets if pods.path]
    if not elsewhere:
        assert not any([*in_specs, *copied])
        return "none"
    if all(in_specs) and all(copied):
        return "all"
    if not any(in_specs) and not any(copied):
        return "all but pod specs and these annotations"
    assert (in_specs, copied) == ([True, False], [True, True])
    return "all but the pod spec of this template"


def _tolerates(template: Root, key: str) -> bool:
    return any(present["key"] == key for present in template["spec"].get("tolerations", ()))


def _editing(decision: Decision) -> str:
    rules = [change.rule for change in decision.changes]
    assert set(rules) <= {"again"}
    return "those with `on_update`" if rules else "none"


def test_the_cases_cover_both_tables() -> None:
    assert {case[0] for case in _EDIT_CASES} == set(_EDITS)
    assert {case[0] for case in _FINDING_CASES} == set(_FINDINGS)


@pytest.mark.parametrize(("row", "git", "change", "subresource"), _EDIT_CASES)
def test_edits_are_as_the_table_says(row: str, git: Root, change: Callable[[Root], None], subresource: str) -> None:
    live = _live(git)
    sent = clone(git)
    change(sent)
    if git["kind"] != "Pod":
        assert recorded(live)
    if row == "changes no spec, label or annotation":
        sent = clone(live)
        change(sent)
        decision = decided(sent, _bound(*_EDITING, memory="64Gi", toleration="second"), old=live)
        assert (decision.patch, _EDITS[row]) == ([], ("none", "none"))
        return
    decision = decided(sent, _bound(*_EDITING, memory="64Gi", toleration="second"), old=live, subresource=subresource)
    assert (_reapplied(sent, subresource), _editing(decision)) == _EDITS[row]


def _fault(_workload: Any, _params: Any, _snapshot: Any) -> Iterator[Finding]:
    """One finding about the first template and one about the object, as bad as the object's label says."""
    size = int(_workload.labels().get("fault", "0"))
    for path in ((*_workload.pod_sets[0].path, "spec"), ("metadata", "labels")):
        if size:
            yield Finding("Fault", path, "a fault", "Mend it.", measure=size)


_FAULTY = _bound(_rule("faulty", mutate=no_edits, check=_fault, reasons={"Fault": Reason("A fault.")}))


def _with_fault(root: Root, size: int) -> Root:
    root["metadata"].setdefault("labels", {})["fault"] = str(size)
    return root


def _severities(old: Root, new: Root) -> dict[str, str]:
    """The strongest severity of the findings about the template, and of those about the object."""
    findings = decided(clone(new), _FAULTY, old=clone(old)).findings
    weakest_first = sorted(findings, key=lambda one: one.severity.value == "deny")
    return {"object" if one.finding.path[0] == "metadata" else "template": one.severity.value for one in weakest_first}


def _said(old: Root, new: Root) -> str:
    """What becomes of findings, of the same fault as before, of a worse one and of a new one."""
    new["metadata"].setdefault("labels", {})["sent"] = "again"
    same, worse, fresh = (
        _severities(_with_fault(clone(old), was), _with_fault(clone(new), now)) for was, now in ((2, 2), (2, 3), (0, 2))
    )
    assert worse == fresh
    both = {
        ("deny", "deny", "deny", "deny"): "deny, also those that a new object would get",
        ("warn", "warn", "warn", "warn"): "warn",
        ("warn", "warn", "warn", "deny"): "warn, if about this template",
        ("warn", "warn", "deny", "deny"): "deny if new or worse than before",
    }
    return both[same["template"], same["object"], worse["template"], worse["object"]]


def _deployment(replicas: int = 4, **more: Any) -> Root:
    return templated("Deployment", container(**more), replicas=replicas)


def _selecting(root: Root) -> Root:
    root["spec"]["selector"] = {"matchLabels": {"app": "w"}}
    return root


def _suspended(*, suspend: bool, gpus: int = 1, parallelism: int = 2) -> Root:
    return templated("Job", container(gpus=gpus), parallelism=parallelism, suspend=suspend)


def _queued(queue: str) -> Root:
    root = _deployment()
    root["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return root


_TOGGLES = "toggles suspend with the same queue, the same requests and no more pods"
_LEAVES = "leaves a template, its queue and its annotations unchanged, with no more pods"
_FINDING_CASES: list[tuple[str, Root, Root]] = [
    ("changes no spec, label or annotation", _deployment(), _deployment()),
    ("changes an immutable field", templated("Job", container(image="a")), templated("Job", container(image="b"))),
    (
        "changes an immutable field",
        _deployment(),
        _deployment() | {"spec": _deployment()["spec"] | {"selector": {"matchLabels": {}}}},
    ),
    (_TOGGLES, _suspended(suspend=True), _suspended(suspend=False)),
    (_TOGGLES, _suspended(suspend=False), _suspended(suspend=True, parallelism=1)),
    (_LEAVES, _deployment(), _deployment(replicas=2)),
    (_LEAVES, _deployment(), _deployment()),
    (_LEAVES, _deployment(memory="1Gi"), _deployment(memory="1024Mi")),
    ("any other", _deployment(), _deployment(replicas=5)),
    ("any other", _deployment(), _deployment(image="other")),
    ("any other", _queued("a"), _queued("b")),
    ("any other", _deployment(), _annotated(_deployment())),
    ("any other", pod(container()), pod(container(), nodeName="n")),
    ("any other", _suspended(suspend=True), _suspended(suspend=False, parallelism=3)),
]


@pytest.mark.parametrize(("row", "old", "new"), _FINDING_CASES)
def test_findings_are_as_the_table_says(row: str, old: Root, new: Root) -> None:
    if row == "changes no spec, label or annotation":
        old, new = _with_fault(old, 2), _with_fault(new, 2)
        new["status"] = {"replicas": 1}
        assert (_severities(old, new), _FINDINGS[row]) == ({}, ("are not looked for",))
        return
    assert (_said(old, new),) == _FINDINGS[row]


def test_a_new_object_is_judged_in_the_mutating_phase_alone() -> None:
    old, new = (_with_fault(templated("Job", container(image=image)), 2) for image in "ab")
    found = decided(clone(new), _FAULTY, old=clone(old), phase=Phase.CHECK).findings
    assert {one.severity.value for one in found} == {"warn"}


def test_the_old_object_of_an_update_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find_pods, found = opening.find_pods, []

    def finding(kind: Any, root: Root) -> Any:
        found.append(root)
        return find_pods(kind, root)

    monkeypatch.setattr(opening, "find_pods", finding)
    old = templated("Deployment", container(), replicas=2)
    new = clone(old)
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    decision = decided(new, _bound(*_EDITING), old=old, phase=Phase.MUTATE)
    assert decision.patch
    assert [root is old for root in found].count(True) == 1
