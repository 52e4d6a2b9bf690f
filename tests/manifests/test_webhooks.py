"""The webhook configurations: every kind that gpugate reads, no other, and nothing that could hold up a cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.kube import accelerators
from gpugate.policies.workloads.kinds import KINDS
from tests.manifests.installation import BASE, the

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
BOTH = pytest.mark.parametrize("configuration", [MUTATING, VALIDATING])
KUEUE = "kueue-mutating-webhook-configuration"
ASKS = "asks-for-an-accelerator"
REVIEWED_SUBRESOURCES = {"pods/ephemeralcontainers", "pods/resize"}


def webhooks(configuration: str) -> list[Any]:
    found: list[Any] = the(configuration)["webhooks"]
    return found


def is_for_takers(webhook: Any) -> bool:
    """Whether the webhook is one for objects that ask for no accelerator and get at them all the same."""
    return str(webhook["name"]).startswith("takers-")


def judging(configuration: str) -> list[Any]:
    """The webhooks for objects that ask for accelerators."""
    return [webhook for webhook in webhooks(configuration) if not is_for_takers(webhook)]


def rules(configuration: str) -> list[tuple[str, str, tuple[str, ...], Any]]:
    """(group, resource, operations, webhook) of every resource in every rule of those."""
    return [
        (group, resource, tuple(rule["operations"]), webhook)
        for webhook in judging(configuration)
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def conditions(webhook: Any) -> dict[str, str]:
    return {one["name"]: one["expression"] for one in webhook["matchConditions"]}


@BOTH
def test_every_kind_is_there_once_and_no_other(configuration: str) -> None:
    there = [(group, resource) for group, resource, _, _ in rules(configuration) if resource not in REVIEWED_SUBRESOURCES]
    assert sorted(there) == sorted((kind.group, kind.resource) for kind in KINDS)


def test_names_are_distinct_and_mutation_comes_before_kueue() -> None:
    assert the(MUTATING)["metadata"]["name"] < KUEUE
    names = [webhook["name"] for one in (MUTATING, VALIDATING) for webhook in webhooks(one)]
    assert len(set(names)) == len(names)


def test_without_a_policy_that_refuses_everything_fails_open() -> None:
    assert {one["failurePolicy"] for kind in (MUTATING, VALIDATING) for one in webhooks(kind)} == {"Ignore"}
    assert {one["reinvocationPolicy"] for one in webhooks(MUTATING)} == {"IfNeeded"}
    assert {one["timeoutSeconds"] for one in webhooks(MUTATING)} == {3}
    assert {one["timeoutSeconds"] for one in judging(VALIDATING)} == {3}


def test_what_asks_for_no_accelerator_never_waits_long_and_is_never_refused_for_want_of_an_answer() -> None:
    takers = [one for one in webhooks(VALIDATING) if is_for_takers(one)]
    assert [one["name"] for one in takers] == [f"takers-{what}.validate.gpugate.io" for what in ("pods", "templates", "cronjobs")]
    assert {(one["failurePolicy"], one["timeoutSeconds"]) for one in takers} == {("Ignore", 2)}
    assert not any(map(is_for_takers, webhooks(MUTATING)))
    asked = {conditions(one)[ASKS] for one in judging(VALIDATING)}
    for one in takers:
        # What asks is sent to one webhook, and not to two.
        assert conditions(one)["asks-for-no-accelerator"].removeprefix("!") in asked
        assert ASKS not in conditions(one)


def test_an_update_of_a_pod_that_only_takes_is_sent_for_its_ephemeral_containers_alone() -> None:
    (pods,) = (one for one in webhooks(VALIDATING) if one["name"].startswith("takers-pods."))
    operations = {resource: rule["operations"] for rule in pods["rules"] for resource in rule["resources"]}
    assert operations == {"pods": ["CREATE"], "pods/ephemeralcontainers": ["UPDATE"]}


def test_operations() -> None:
    assert {ops for _, resource, ops, _ in rules(MUTATING) if resource == "pods"} == {("CREATE",)}
    assert not REVIEWED_SUBRESOURCES & {resource for _, resource, _, _ in rules(MUTATING)}
    assert {r: ops for _, r, ops, _ in rules(VALIDATING) if r in REVIEWED_SUBRESOURCES} == dict.fromkeys(
        REVIEWED_SUBRESOURCES, ("UPDATE",)
    )
    others = {ops for one in (MUTATING, VALIDATING) for _, r, ops, _ in rules(one) if not r.startswith("pods")}
    assert others == {("CREATE", "UPDATE")}


@BOTH
def test_what_the_apiserver_would_default_is_written_out(configuration: str) -> None:
    path = {MUTATING: "/mutate", VALIDATING: "/validate"}[configuration]
    service = {"name": the("Service")["metadata"]["name"], "namespace": "gpugate-system", "path": path, "port": 443}
    for webhook in webhooks(configuration):
        assert webhook["clientConfig"] == {"service": service}
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["objectSelector"] == {}
        # Either door may refuse, and a refusal leaves an Event: tests/webhook/admission/test_denials.py.
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert {rule["scope"] for rule in webhook["rules"]} == {"Namespaced"}


@BOTH
def test_the_versions_are_those_of_the_table(configuration: str) -> None:
    versions = {
        (group, resource): tuple(rule["apiVersions"])
        for webhook in webhooks(configuration)
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if resource not in REVIEWED_SUBRESOURCES
    }
    assert versions == {(kind.group, kind.resource): kind.versions for kind in KINDS}


def test_no_file_states_a_ca_bundle() -> None:
    for path in BASE.rglob("*.yaml"):
        assert not re.search(r"^[^#]*caBundle", path.read_text(encoding="utf-8"), re.MULTILINE), path


@BOTH
def test_namespaces_that_must_come_up_without_gpugate_are_left_out(configuration: str) -> None:
    (expression,) = webhooks(configuration)[0]["namespaceSelector"]["matchExpressions"]
    assert expression == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["gpugate-system", "kube-system"],
    }
    assert all(one["namespaceSelector"] == webhooks(configuration)[0]["namespaceSelector"] for one in webhooks(configuration))


@BOTH
def test_the_condition_looks_where_the_kind_keeps_its_pods(configuration: str) -> None:
    by_resource = {(group, resource): webhook for group, resource, _, webhook in rules(configuration)}
    for kind in KINDS:
        expression = conditions(by_resource[kind.group, kind.resource])[ASKS]
        for place in kind.pod_sets:
            path = (*place.template, "spec") if place.resources is None else place.resources
            for part in path:
                if part != "*":
                    assert re.search(rf"\.\??{part}\b", expression), (kind.kind, part)


def test_the_condition_asks_the_same_everywhere() -> None:
    expressions = {
        re.split(r"\.exists\(spec,\s", conditions(webhook)[ASKS])[1].rstrip(")")
        for one in (MUTATING, VALIDATING)
        for webhook in judging(one)
    }
    assert len(expressions) == 1


@BOTH
def test_nothing_that_ends_or_cleans_up_is_sent(configuration: str) -> None:
    for webhook in webhooks(configuration):
        updates = any("UPDATE" in rule["operations"] for rule in webhook["rules"])
        assert ({"is-not-being-deleted", "changes-more-than-finalizers"} <= conditions(webhook).keys()) is updates
        resources = {resource for rule in webhook["rules"] for resource in rule["resources"]}
        assert ("is-no-mirror-pod" in conditions(webhook)) is ("pods" in resources)


def is_sent(name: str) -> bool:
    """What the condition says of one device in an object, by the words of its expression (the e2e tests ask the apiserver)."""
    expression = conditions(webhooks(VALIDATING)[0])[ASKS]
    match = re.search(r"name\.matches\('([^']+)'\)", expression)
    assert match
    assert "name.contains('/')" in expression
    assert "!name.endsWith('_monitoring')" in expression
    return "/" in name and not name.endswith("_monitoring") and re.search(match[1], name) is not None


@pytest.mark.parametrize("name", sorted({*accelerators._WHOLE, *accelerators._CORRECT, "aws.amazon.com/neuroncore"}))
def test_names_of_accelerators_and_common_mistakes_are_sent(name: str) -> None:
    assert is_sent(name)


@pytest.mark.parametrize("device_class", sorted(accelerators.GPU_DEVICE_CLASSES))
def test_device_classes_asked_for_as_extended_resources_are_sent(device_class: str) -> None:
    assert is_sent(f"deviceclass.resource.kubernetes.io/{device_class}")


@given(st.one_of(st.from_regex(p, fullmatch=True) for p in (accelerators._MIG, accelerators._RENAMED, accelerators._MISSPELT_MIG)))
def test_whatever_the_rules_take_for_an_accelerator_or_correct_is_sent(name: str) -> None:
    assert is_sent(name) is ("/" in name)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-2Mi",
        "devices.kubevirt.io/kvm",
        "example.com/migration-slots",
        "example.com/output-slots",
        "github.com/fuse",
        "gpu.intel.com/i915_monitoring",
        "nvidia.com/hostdev",
        "qat.intel.com/generic",
        "rdma/hca",
        "vpc.amazonaws.com/efa",
    ],
)
def test_other_resources_are_not_sent(name: str) -> None:
    assert not is_sent(name)
