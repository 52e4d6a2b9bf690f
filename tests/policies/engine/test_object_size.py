"""Objects over a limit: what is reported of them, which limits hold, and that gpugate's own edits never refuse them."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.engine.engine import decide
from gpugate.policies.engine.exemptions import EXEMPT, REASON
from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import BoundRule, Decision, Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.security import object_size
from gpugate.policies.rules.security.object_size import ObjectSizeParams
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from tests.shared import cases
from tests.shared.builders import bind, container, decided, node, opened, pod, policy, reasons, templated

_PLEA = {EXEMPT: "object-size", REASON: "generated"}


def _containers(number: int) -> list[dict[str, Any]]:
    return [container(f"c{at}") for at in range(number)]


def _bound(*, exempt: bool = True, mode: str = "Enforce", **limits: int) -> tuple[BoundRule, ...]:
    rules = {"object-size": {"mode": mode, **limits}, "shared-memory": {}}
    return bind(rules, exemptions={"rules": ["object-size"]} if exempt else {})


def test_an_object_over_a_limit_reports_why_its_exemption_does_not_hold() -> None:
    root = pod(*_containers(3), annotations=_PLEA)
    decision = decided(root, _bound(exempt=False, containers=2))
    assert reasons(decision) == [
        ("object-size", "ExemptionNotAllowed", "warn"),
        ("object-size", "TooManyContainers", "deny"),
    ]


def test_the_mutating_webhook_reports_nothing_of_an_object_over_a_limit() -> None:
    decision = decided(pod(*_containers(3), annotations=_PLEA), _bound(exempt=False, containers=2), phase=Phase.MUTATE)
    assert decision == Decision()


def test_an_exempt_object_over_a_limit_passes_unjudged_with_both_findings() -> None:
    root = pod(*_containers(3), annotations=_PLEA)
    decision = decided(root, _bound(containers=2))
    assert reasons(decision) == [("object-size", "Exempt", "warn"), ("object-size", "TooManyContainers", "warn")]
    assert decision.patch == []


def test_an_exempt_object_has_the_limits_that_the_policy_raised() -> None:
    root = pod(*_containers(1030), annotations=_PLEA)
    decision = decided(root, _bound(containers=2000, acceleratorContainers=2000, resourceNames=10_000))
    assert reasons(decision) == [("object-size", "Exempt", "warn")]
    assert decision.patch


@pytest.mark.parametrize("broken", [{"volumes": 5}, {"volumes": []}])
def test_containers_with_resource_claims_alone_count_also_beside_a_malformed_field(broken: dict[str, Any]) -> None:
    claiming = [{"name": f"c{at}", "resources": {"claims": [{"name": "gpu"}]}} for at in range(3)]
    decision = decided(pod(*claiming, **broken), bind({"object-size": {"acceleratorContainers": 2}}))
    assert reasons(decision) == [("object-size", "TooManyAcceleratorContainers", "deny")]


def _at_every_limit(root: dict[str, Any]) -> tuple[BoundRule, ...]:
    """Every rule, with limits that the object just keeps."""
    counts = object_size.count(opened(clone(root)))
    limits = {field: max(number, 1) for field, number in counts.items()}
    return bind({"object-size": ObjectSizeParams(**limits).model_dump(by_alias=True)}, mode="Enforce")


def test_an_object_at_every_limit_is_not_refused_for_what_gpugate_adds() -> None:
    nodes = [node("gpu-1", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}], labels={"nvidia.com/gpu.product": "H100"})]
    snapshot = snapshot_from_objects([{**one, "apiVersion": "v1", "kind": "Node"} for one in nodes])
    for root in (pod(container(memory=None)), templated("Job", container(memory=None), container("b", memory=None))):
        bound = _at_every_limit(root)
        assert decided(root, bound, snapshot=snapshot, phase=Phase.MUTATE).patch
        found = decided(root, bound, snapshot=snapshot, phase=Phase.CHECK)
        assert [reason for rule, reason, _ in reasons(found) if rule == "object-size"] == []


def test_no_golden_case_at_every_limit_goes_over_one_by_its_edits() -> None:
    over = []
    for case in cases.all_cases():
        counts = object_size.count(opened(case.given))
        after = case.given
        case.decide(after)
        params = ObjectSizeParams(**{field: max(number, 1) for field, number in counts.items()})
        limits = BoundRule(object_size.RULE, params, Mode.ENFORCE)
        if object_size.over_limits(opened(after), limits, edited=True):
            over.append(str(case))
    assert over == []


def test_the_validating_webhook_refuses_more_entries_than_gpugate_may_have_added() -> None:
    tolerations = [{"key": f"k{at}", "operator": "Exists"} for at in range(6000)]
    bound = bind({"object-size": {}})
    assert reasons(decided(pod(container(), tolerations=tolerations), bound, phase=Phase.CHECK)) == [
        ("object-size", "TooManyTolerations", "deny")
    ]


def test_what_gpugate_never_adds_has_the_same_limit_at_both_webhooks() -> None:
    bound = bind({"object-size": {"containers": 2}})
    assert decided(pod(*_containers(3)), bound, phase=Phase.CHECK).refused


def _job_set(number: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": {"containers": [container(memory=None)]}}}}
    jobs = [{"name": f"j{at}", "template": clone(template)} for at in range(number)]
    metadata = {"name": "j", "namespace": "team-a"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs, **spec},
    }


def _app_wrapper(wrapped: int, each: int) -> dict[str, Any]:
    components = [{"template": _job_set(each)} for _ in range(wrapped)]
    metadata = {"name": "a", "namespace": "team-a"}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata,
        "spec": {"components": components},
    }


def _received(root: dict[str, Any], old: dict[str, Any] | None = None, **limits: int) -> Decision:
    """Decide as the validating webhook does, which opens no more pod templates than any policy allows."""
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    operation = "CREATE" if old is None else "UPDATE"
    bound = bind({"object-size": {"podSets": 10, **limits}})
    workload = open_workload(kind, root, EMPTY_SNAPSHOT, operation=operation, old=old, most_unread=limits.get("podSets", 10))
    return decide(workload, bound, EMPTY_SNAPSHOT, Phase.CHECK)


@pytest.mark.parametrize(("root", "number"), [(_job_set(11), 11), (_app_wrapper(3, 5), 15), (_app_wrapper(11, 1), 11)])
def test_an_object_with_too_many_pod_templates_is_refused_before_they_are_opened(root: dict[str, Any], number: int) -> None:
    decision = _received(root)
    assert reasons(decision) == [("object-size", "TooManyPodSets", "deny")]
    assert f"has {number} pod templates, more than the limit of 10" in decision.findings[0].finding.message


@pytest.mark.parametrize(("after", "severity"), [(11, "warn"), (12, "warn"), (13, "deny")])
def test_an_update_with_too_many_pod_templates_is_refused_only_if_it_has_more_than_before(after: int, severity: str) -> None:
    decision = _received(_job_set(after, suspend=True), old=_job_set(12))
    assert reasons(decision) == [("object-size", "TooManyPodSets", severity)]


def test_pod_templates_up_to_the_limit_are_opened_and_judged() -> None:
    assert _received(_job_set(10)).findings == []
    assert _received(_job_set(12), podSets=12).findings == []


def test_only_labels_that_a_selector_reads_tell_bindings_apart() -> None:
    selecting = policy(mode="Enforce", match={"objectSelector": {"matchLabels": {"team": "a"}}})
    policies = PolicySet([selecting])
    bound = policies.bind({}, {"team": "a", "x": "1"})
    assert bound
    assert policies.bind({}, {"team": "a", "y": "2" * 100}) is bound
    assert policies.bind({}, {"team": "a" * 100}) == policies.bind({}, {"team": "a" * 200}) == policies.bind({}, {}) == ()
