"""The engine: modes, what it lets pass, and what becomes of a rule that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Finding as Found
from gpugate.policies.findings import Level, Mode, Severity, judge
from gpugate.policies.framework.decision import BoundRule, Phase
from gpugate.policies.framework.rule import no_edits
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.rules.registry import BY_ID
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from tests.shared.builders import bind, container, decided, every_rule, node, opened, pod, reasons, templated, texts

_BAD = pod(
    container(memory="96Gi", volumeMounts=None)
    | {"resources": {"limits": {"nvidia.com/gpu": 1, "memory": "96Gi"}, "requests": {"memory": "8Gi"}}}
)


def test_dryrun_changes_nothing_and_reports_what_enforce_then_does() -> None:
    rehearsed, done = clone(_BAD), clone(_BAD)
    dry, real = decided(rehearsed, every_rule("DryRun")), decided(done, every_rule("Enforce"))
    assert rehearsed == _BAD
    assert (dry.patch, dry.changes, dry.refused) == ([], [], False)
    assert real.patch
    assert texts(dry.would_change) == texts(real.changes)
    assert {change.mode for change in dry.would_change} == {Mode.DRY_RUN}
    assert [one.finding for one in dry.findings] == [one.finding for one in real.findings]
    assert {one.severity for one in dry.findings} == {Severity.DRYRUN}
    assert real.refused
    assert real.would_change == []


def test_mutate_makes_the_same_changes_and_refuses_nothing() -> None:
    warned, done = clone(_BAD), clone(_BAD)
    warn, real = decided(warned, every_rule("Mutate")), decided(done, every_rule("Enforce"))
    assert warned == done
    assert warn.patch == real.patch
    assert not warn.refused
    assert [one.finding for one in warn.findings] == [one.finding for one in real.findings]


def test_a_rule_in_dryrun_sees_what_the_enforced_ones_change_and_not_the_other_way_round() -> None:
    root = pod(container(memory=None))
    decision = decided(root, bind({"host-memory": {"mode": "DryRun"}, "shared-memory": {"mode": "Enforce"}}))
    # Enforced alone, /dev/shm is sized without the memory limit that was only rehearsed.
    assert root["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "8Gi"
    assert [change.rule for change in decision.changes] == ["shared-memory"]
    assert [change.rule for change in decision.would_change] == ["host-memory"]
    assert decision.findings == []


def test_the_checks_look_at_the_edited_object() -> None:
    decision = decided(pod(container(memory=None)), bind({"host-memory": {}, "shared-memory": {}}))
    assert reasons(decision) == []
    assert decided(pod(container(memory=None)), bind({"host-memory": {}, "shared-memory": {}}), phase=Phase.CHECK).refused


def test_the_mutating_door_finds_nothing_and_the_validating_one_edits_nothing() -> None:
    mutating, checking = clone(_BAD), clone(_BAD)
    assert decided(mutating, every_rule(), phase=Phase.MUTATE).findings == []
    validated = decided(checking, every_rule(), phase=Phase.CHECK)
    assert (validated.patch, validated.changes) == ([], [])
    assert checking == _BAD
    assert {"NotMounted", "Overcommit"} <= {reason for _, reason, _ in reasons(validated)}


def test_both_doors_together_find_what_a_review_finds() -> None:
    reviewed, passed = clone(_BAD), clone(_BAD)
    whole = decided(reviewed, every_rule())
    decided(passed, every_rule(), phase=Phase.MUTATE)
    assert reasons(decided(passed, every_rule(), phase=Phase.CHECK)) == reasons(whole)


def test_findings_come_in_one_order() -> None:
    decision = decided(clone(_BAD), reversed(every_rule()), phase=Phase.CHECK)
    assert decision.findings == sorted(decision.findings, key=lambda one: one.sort_key)
    assert decision.findings == decided(clone(_BAD), every_rule(), phase=Phase.CHECK).findings


# --- what passes ---------------------------------------------------------------------------------------------------------


def test_what_is_being_deleted_passes_untouched() -> None:
    root = clone(_BAD)
    root["metadata"] |= {"deletionTimestamp": "2031-05-17T12:00:00Z", "finalizers": []}
    before = clone(root)
    decision = decided(root, every_rule(), old=_BAD)
    assert (decision.patch, decision.findings) == ([], [])
    assert root == before


def test_the_mirror_of_a_static_pod_passes_untouched() -> None:
    root = clone(_BAD)
    root["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    assert decided(root, every_rule()).findings == []
    assert "volumes" not in root["spec"]


@pytest.mark.parametrize(
    ("namespace", "account", "bound", "is_left"),
    [
        ("gpu-operator", "nvidia-operator-validator", {"nodeName": "n1"}, True),
        ("gpu-operator", "nvidia-operator-validator", {}, False),
        ("gpu-operator", "default", {"nodeName": "n1"}, False),
        ("team-a", "nvidia-operator-validator", {"nodeName": "n1"}, False),
    ],
)
def test_the_pod_that_tries_a_node_out_for_the_gpu_operator_passes_untouched(
    namespace: str, account: str, bound: dict[str, str], *, is_left: bool
) -> None:
    root = clone(_BAD)
    root["metadata"]["namespace"] = namespace
    root["spec"] |= {"serviceAccountName": account, **bound}
    decision = decided(root, every_rule())
    assert ((decision.patch, decision.findings) == ([], [])) is is_left


def test_an_update_of_status_finalizers_or_managed_fields_alone_passes() -> None:
    root = clone(_BAD)
    root["status"] = {"phase": "Running"}
    root["metadata"] |= {"finalizers": ["x"], "resourceVersion": "2", "managedFields": [{}], "labels": None, "annotations": {}}
    decision = decided(root, every_rule(), old=_BAD)
    assert (decision.patch, decision.findings) == ([], [])


def test_an_update_of_a_pod_changes_nothing_and_an_old_sin_is_a_warning() -> None:
    root = clone(_BAD)
    root["metadata"]["labels"] = {"seen": "yes"}
    decision = decided(root, every_rule(), old=_BAD)
    assert decision.patch == []
    assert decision.findings
    assert {one.severity for one in decision.findings} == {Severity.WARN}


def test_a_new_sin_in_an_update_is_refused_whatever_the_old_ones() -> None:
    root = clone(_BAD)
    root["spec"]["containers"].append(container("second", memory="8Gi", resources={"limits": {"nvidia.com/gpu": "0.5"}}))
    decision = decided(root, every_rule(), old=_BAD)
    assert ("accelerator-names", "FractionalCount", "deny") in reasons(decision)
    assert ("host-memory", "Overcommit", "warn") in reasons(decision)


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_sub_resources_are_judged_and_never_edited(subresource: str) -> None:
    root = clone(_BAD)
    root["spec"]["containers"][0]["resources"]["limits"]["memory"] = "200Gi"
    decision = decided(root, every_rule(), old=_BAD, subresource=subresource)
    assert decision.patch == []
    assert ("host-memory", "Overcommit", "deny") in reasons(decision)


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_an_update_without_its_old_object_is_judged_and_not_edited(kind: str) -> None:
    root = pod(container()) if kind == "Pod" else templated(kind, container())
    of = kind_of(root["apiVersion"], kind)
    assert of is not None
    decision = decide(open_workload(of, root, EMPTY_SNAPSHOT, operation="UPDATE"), every_rule(), EMPTY_SNAPSHOT)
    assert decision.patch == []
    assert ("shared-memory", "NotMounted", "deny") in reasons(decision)


def test_one_pods_tolerations_are_not_remembered_for_another() -> None:
    bound = bind({"tolerations": {}})
    for device in ("nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu"):
        root = pod({"name": "main", "resources": {"limits": {device: 1}}})
        decided(root, bound)
        assert [one["key"] for one in root["spec"]["tolerations"]] == [device]


def test_a_replica_set_that_a_deployment_made_is_let_be() -> None:
    # The Deployment controller would not know an edited one again, and make the next, for ever.
    root = templated("ReplicaSet", container())
    root["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "d", "controller": True}]
    decision = decided(root, every_rule())
    assert (decision.patch, decision.findings) == ([], [])


def test_a_replica_set_of_its_own_is_edited_like_any_template() -> None:
    root = templated("ReplicaSet", container())
    assert decided(root, every_rule()).patch
    assert ANNOTATION in root["metadata"]["annotations"]


def test_a_deployment_that_an_operator_owns_is_recorded_and_what_it_states_is_not_overwritten() -> None:
    stated = {"limits": {"nvidia.com/gpu": "1", "cpu": "4", "memory": "32Gi"}, "requests": {"cpu": "4", "memory": "16Gi"}}
    root = templated("Deployment", container() | {"resources": stated})
    owner = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "llm", "controller": True}
    root["metadata"]["ownerReferences"] = [owner]
    decision = decided(root, every_rule())
    assert root["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] == "16Gi"
    assert any("the owner sets" in one.finding.message for one in decision.findings)
    assert ANNOTATION in root["metadata"]["annotations"]


def test_a_review_of_files_records_nothing() -> None:
    root = templated("Job", container())
    decision = decide(opened(root), every_rule(), snapshot_from_objects([]), remember=False)
    assert decision.patch
    assert "annotations" not in root["metadata"]


# --- a rule that breaks --------------------------------------------------------------------------------------------------


class _BrokenError(Exception):
    pass


def _raises(*_: object) -> Iterator[Any]:
    message = "secret detail"
    raise _BrokenError(message)


def _broken(mode: Mode, *, mutate: Any = no_edits, check: Any = no_edits) -> BoundRule:
    rule = replace(BY_ID["numa"], mutate=mutate, check=check)
    return BoundRule(rule, rule.params(), mode)


@pytest.mark.parametrize("where", ["mutate", "check"])
@pytest.mark.parametrize(("mode", "severity"), [(Mode.ENFORCE, "deny"), (Mode.MUTATE, "warn"), (Mode.DRY_RUN, "dryrun")])
def test_a_rule_that_breaks_refuses_or_passes_by_its_mode_and_is_counted(mode: Mode, severity: str, where: str) -> None:
    root = pod(container())
    bound = [_broken(mode, **{where: _raises}), *bind({"tolerations": {}})]
    decision = decided(root, bound)
    assert reasons(decision) == [("numa", "InternalError", severity)]
    assert [(one.rule, type(one.error)) for one in decision.failures] == [("numa", _BrokenError)]
    assert root["spec"]["tolerations"], "the other rules go on"
    finding = decision.findings[0].finding
    assert "_BrokenError" in finding.message
    assert "secret detail" not in finding.message


def test_a_rule_that_breaks_twice_is_reported_once() -> None:
    decision = decided(pod(container()), [_broken(Mode.ENFORCE, mutate=_raises, check=_raises)])
    assert reasons(decision) == [("numa", "InternalError", "deny")]
    assert len(decision.failures) == 2


def test_a_malformed_object_is_no_broken_rule() -> None:
    with pytest.raises(MalformedError) as caught:
        decided(pod(container(memory="lots")), every_rule())
    assert caught.value.path == ("spec", "containers", 0, "resources", "limits", "memory")
    assert "is no Kubernetes quantity" in caught.value.problem


@pytest.mark.parametrize(
    ("level", "mode", "severity"),
    [
        (Level.DENY, Mode.ENFORCE, "deny"),
        (Level.DENY, Mode.MUTATE, "warn"),
        (Level.DENY, Mode.DRY_RUN, "dryrun"),
        (Level.WARN, Mode.ENFORCE, "warn"),
        (Level.UNKNOWN, Mode.ENFORCE, "unknown"),
        (Level.UNKNOWN, Mode.MUTATE, "unknown"),
        (Level.UNKNOWN, Mode.DRY_RUN, "dryrun"),
    ],
)
def test_the_mode_of_the_rule_gives_a_finding_its_severity(level: Level, mode: Mode, severity: str) -> None:
    assert judge("r", mode, Found("Reason", (), "m", "r.", level)).severity.value == severity


def test_every_rule_together_makes_a_bare_pod_ready_to_run() -> None:
    before = pod(container(memory=None))
    root = clone(before)
    snapshot = snapshot_from_objects(
        [
            node("n", taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]),
            {"kind": "LocalQueue", "metadata": {"namespace": "team-a", "name": "q"}, "spec": {}},
        ]
    )
    rules = bind({"queue": {"kinds": ["Pod"]}}, mode="Enforce")
    decision = decided(root, rules, snapshot=snapshot)
    assert decision.findings == []
    assert [change.rule for change in decision.changes] == ["tolerations", "queue", "host-memory", "numa", "shared-memory"]
    assert jsonpatch.apply_patch(before, decision.patch) == root
    assert decided(clone(root), rules, snapshot=snapshot, phase=Phase.CHECK).findings == []


def _too_large() -> dict[str, Any]:
    return pod(container(gpus=16))


def test_a_refusal_that_rests_on_facts_out_of_date_is_not_known_and_says_how_old_they_are() -> None:
    snapshot = replace(snapshot_from_objects([node("n")]), stale={"nodes": 7, "pods": 9})
    decision = decided(_too_large(), every_rule(), snapshot=snapshot)
    (found,) = [one for one in decision.findings if one.finding.reason == "NeverFits"]
    assert found.severity is Severity.UNKNOWN
    assert "(nodes as of 7 minutes ago: the watch is broken)" in found.finding.message


def test_what_is_not_known_is_refused_where_the_policy_says_so_and_the_rule_enforces() -> None:
    snapshot = replace(snapshot_from_objects([node("n")]), stale={"nodes": 1})
    for mode, wanted in ((Mode.ENFORCE, Severity.DENY), (Mode.MUTATE, Severity.UNKNOWN), (Mode.DRY_RUN, Severity.DRYRUN)):
        bound = [one._replace(deny_on_unknown=True, mode=mode) for one in every_rule()]
        decision = decided(_too_large(), bound, snapshot=snapshot)
        assert {one.severity for one in decision.findings if one.finding.reason == "NeverFits"} == {wanted}


def test_facts_that_are_old_touch_no_finding_that_does_not_rest_on_them() -> None:
    snapshot = replace(snapshot_from_objects([node("n")]), stale={"nodes": 7})
    overcommitted = clone(_BAD)
    decision = decided(overcommitted, every_rule(), snapshot=snapshot)
    assert ("Overcommit", Severity.DENY) in {(one.finding.reason, one.severity) for one in decision.findings}
