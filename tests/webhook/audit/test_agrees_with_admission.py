"""The audit and the door agree on every example, whatever the mode: what DryRun reports is what Enforce then does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Mode
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet, settings_of
from gpugate.policies.policy.models import Policy
from gpugate.policies.rules.registry import RULES
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.admission.response import strip_immutable_words
from gpugate.webhook.audit.evaluate import AuditContext
from gpugate.webhook.audit.index import index_of
from gpugate.webhook.audit.model import AuditedWorkload, Effect
from gpugate.webhook.audit.subjects import subjects_in
from gpugate.webhook.files.inputs import load_facts, load_policies, objects_in
from tests.shared.reviews import CLUSTER, POLICY, WORKLOADS, InProcess, admission, patched

EXAMPLES = [one for one in objects_in([str(WORKLOADS)]) if kind_of(one["apiVersion"], one["kind"]) is not None]


#: A pod that is there is one of the gang's members itself, so that no audit can call it one too many.
MEMBERS = {"Pod-sweep-2"}


@cache
def snapshot() -> ClusterSnapshot:
    return load_facts([CLUSTER, WORKLOADS / "26-dra-claim.yaml"])


def policies(mode: Mode) -> list[Policy]:
    """The examples' policies, every rule that they bind in ``mode``, those named that would be weaker otherwise."""
    found = []
    for one in load_policies([POLICY]):
        bound = {rule.id.replace("-", "_"): settings for rule in RULES if (settings := settings_of(one, rule)) is not None}
        rules = one.spec.rules.model_copy(
            update={name: settings.model_copy(update={"mode": mode}) for name, settings in bound.items()}
        )
        spec = one.spec.model_copy(update={"mode": mode if one.spec.mode else None, "rules": rules})
        found.append(one.model_copy(update={"spec": spec}))
    return found


def owned(value: Any) -> dict[str, Any]:
    """The fields of ``value`` as managedFields name them, lists as a whole."""
    return {f"f:{key}": owned(item) for key, item in value.items()} if isinstance(value, dict) else {}


def stored(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as the apiserver has it, some time after it was made."""
    found = clone(obj)
    found["metadata"] |= {
        "uid": "0d2c3b4a-0000-4000-8000-000000000001",
        "resourceVersion": "4711",
        "generation": 1,
        "creationTimestamp": "2026-11-02T08:00:00Z",
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": owned(obj.get("spec"))}}],
    }
    return found


def audited(obj: dict[str, Any], mode: Mode) -> AuditedWorkload | None:
    books = index_of(subjects_in([obj]))
    list(books.evaluate(AuditContext(PolicySet(policies(mode)), snapshot()), everything=True))
    assert books.remarks() == ()
    found = books.workloads()
    return found[0] if found else None


def effects(one: AuditedWorkload | None, effect: Effect) -> set[tuple[str, str]]:
    return {(item.rule, item.reason) for item in one.items if item.effect is effect} if one else set()


def name_of(obj: dict[str, Any]) -> str:
    return f"{obj['kind']}-{obj['metadata']['name']}"


@pytest.mark.parametrize("obj", [one for one in EXAMPLES if name_of(one) not in MEMBERS], ids=name_of)
def test_the_audit_in_dry_run_says_what_the_door_does_in_enforce(obj: dict[str, Any]) -> None:
    namespace = obj["metadata"].get("namespace", "default")
    door = InProcess(policies(Mode.ENFORCE), snapshot())
    review = admission(obj, namespace=namespace)
    mutated = door.ask(review, "mutate")
    after = patched(obj, mutated)
    answer = door.ask(admission(after, namespace=namespace), "validate")
    found = audited(stored(obj), Mode.DRY_RUN)
    refused = effects(found, Effect.REFUSE)
    assert bool(refused) is not answer["allowed"]
    for item in found.items if found else ():
        if item.effect is Effect.REFUSE:
            assert item.rehearsed
            assert strip_immutable_words(item.message)[:200] in answer["status"]["message"]
    if answer["allowed"]:
        changed = {rule for rule in mutated.get("auditAnnotations", {}) if "." not in rule and rule != "policies"}
        assert {rule for rule, _ in effects(found, Effect.CHANGE)} == changed


@pytest.mark.parametrize("obj", [one for one in EXAMPLES if name_of(one) in MEMBERS], ids=name_of)
def test_a_pod_that_the_door_calls_one_too_many_is_a_member_to_the_audit(obj: dict[str, Any]) -> None:
    door = InProcess(policies(Mode.ENFORCE), snapshot())
    namespace = obj["metadata"]["namespace"]
    after = patched(obj, door.ask(admission(obj, namespace=namespace), "mutate"))
    answer = door.ask(admission(after, namespace=namespace), "validate")
    assert "gang-members" in answer["status"]["message"]
    assert effects(audited(stored(obj), Mode.DRY_RUN), Effect.REFUSE) == set()


@pytest.mark.parametrize("obj", EXAMPLES, ids=name_of)
def test_the_mode_of_a_rule_changes_nothing_in_what_it_says(obj: dict[str, Any]) -> None:
    dry, enforced = audited(stored(obj), Mode.DRY_RUN), audited(stored(obj), Mode.ENFORCE)
    assert (dry is None) is (enforced is None)
    if dry and enforced:
        assert [one._replace(mode=Mode.ENFORCE) for one in dry.items if one.policy] == [one for one in enforced.items if one.policy]


def test_the_examples_show_every_effect() -> None:
    found = {item.effect for obj in EXAMPLES if (one := audited(stored(obj), Mode.DRY_RUN)) for item in one.items}
    assert found >= {Effect.REFUSE, Effect.CHANGE, Effect.WARN, Effect.EXEMPT}


@pytest.mark.parametrize("obj", EXAMPLES, ids=name_of)
def test_what_enforcing_made_of_an_example_is_left_as_it_is(obj: dict[str, Any]) -> None:
    namespace = obj["metadata"].get("namespace", "default")
    door = InProcess(policies(Mode.ENFORCE), snapshot())
    after = patched(obj, door.ask(admission(obj, namespace=namespace), "mutate"))
    assert effects(audited(stored(after), Mode.ENFORCE), Effect.CHANGE) == set()


def test_the_examples_are_there() -> None:
    assert len(EXAMPLES) > 40
    assert Path(WORKLOADS).is_dir()
