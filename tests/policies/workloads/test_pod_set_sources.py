"""The lens: kinds, their pod sets, and how a field of another type is told."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.kube.fields import MalformedError, dotted
from gpugate.policies.workloads.kinds import KINDS, kind_of
from gpugate.policies.workloads.kinds.model import PodSetSpec, WorkloadKind
from gpugate.policies.workloads.pod_set_sources import find_pods
from tests.shared.builders import container, opened, pod, templated
from tests.shared.paths import ROOT


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_is_found_by_group_and_name_in_any_version(kind: Any) -> None:
    group = f"{kind.group}/" if kind.group else ""
    for version in ("v1", "v1beta1", "v2alpha3"):
        assert kind_of(f"{group}{version}", kind.kind) is kind
    assert kind_of("example.com/v1", kind.kind) is None


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Job", {"parallelism": 4}, 4),
        ("Job", {"parallelism": None}, 1),
        ("Job", {"parallelism": 0}, 0),
        ("Deployment", {"replicas": 3}, 3),
        ("StatefulSet", {}, 1),
        ("DaemonSet", {"replicas": 3}, None),
    ],
)
def test_a_template_knows_how_many_pods_it_makes(kind: str, spec: dict[str, Any], count: int | None) -> None:
    assert [pods.count for pods in opened(templated(kind, container(), **spec)).pod_sets] == [count]


def test_a_pod_is_one_and_a_workload_without_template_makes_none() -> None:
    assert [pods.count for pods in opened(pod(container())).pod_sets] == [1]
    assert opened({"apiVersion": "batch/v1", "kind": "Job", "spec": {}}).pod_sets == ()


def places_of(spec: dict[str, Any], *places: PodSetSpec) -> list[tuple[Any, int | None]]:
    kind = WorkloadKind("example.com", "Training", "trainings", places)
    return [(one.path, one.numbers.total) for one in find_pods(kind, {"spec": spec})]


def place(role: str = "", **more: Any) -> PodSetSpec:
    roles = ("spec", "roles", "*")
    return PodSetSpec((*roles, "template"), ((*roles, "replicas"), (*roles, "each")), role=role, **more)


def test_a_kind_may_keep_templates_in_a_list() -> None:
    template = {"spec": {}}
    listed = [{"template": template, "replicas": 2, "each": 3}, {"template": template}, {}]
    assert places_of({"roles": listed}, place()) == [(("spec", "roles", 0, "template"), 6), (("spec", "roles", 1, "template"), 1)]
    assert places_of({"roles": None}, place()) == []


def test_a_kind_may_keep_templates_in_a_map_by_role_in_any_case() -> None:
    template = {"spec": {}}
    roles = {"worker": {"template": template, "replicas": 4}, "Head": {"template": template}, "other": {"template": template}}
    assert places_of({"roles": roles}, place("Head"), place("Worker")) == [
        (("spec", "roles", "Head", "template"), 1),
        (("spec", "roles", "worker", "template"), 4),
    ]
    assert places_of({"roles": {"Worker": None}}, place("Worker")) == []


def test_what_is_absent_counts_by_the_kinds_default_and_no_number_is_below_zero() -> None:
    template = {"spec": {}}
    assert places_of({"roles": [{"template": template}]}, place(default=0)) == [(("spec", "roles", 0, "template"), 0)]
    assert places_of({"roles": [{"template": template, "replicas": 2}]}, place(default=0)) == [
        (("spec", "roles", 0, "template"), 2)
    ]
    assert places_of({"roles": [{"template": template, "replicas": -2}]}, place()) == [(("spec", "roles", 0, "template"), 0)]


@pytest.mark.parametrize(
    ("roles", "role", "where", "wanted"),
    [
        ({"a": {}}, "", "spec.roles", "a list"),
        ("text", "", "spec.roles", "a list"),
        ([], "Worker", "spec.roles", "a map"),
        ([1], "", "spec.roles[0]", "a map"),
        ([{"template": []}], "", "spec.roles[0].template", "a map"),
        ({"Worker": [{"template": {}}]}, "Worker", "spec.roles.Worker", "a map"),
        ([{"template": {}, "replicas": "2"}], "", "spec.roles[0].replicas", "a whole number"),
        ([{"template": {}, "replicas": True}], "", "spec.roles[0].replicas", "a whole number"),
    ],
    ids=str,
)
def test_what_no_template_can_be_in_is_told_with_its_place(roles: Any, role: str, where: str, wanted: str) -> None:
    with pytest.raises(MalformedError) as caught:
        places_of({"roles": roles}, place(role))
    assert (dotted(caught.value.path), wanted in caught.value.problem) == (where, True)


def test_a_spec_that_is_no_map_is_told_with_its_place() -> None:
    with pytest.raises(MalformedError, match=r"^spec: must be a map, is a list$"):
        list(find_pods(WorkloadKind("example.com", "Training", "trainings", (place(),)), {"spec": []}))


def test_containers_have_their_roles() -> None:
    inits = [container("init"), container("side", restartPolicy="Always")]
    made = opened(pod(container("main"), initContainers=inits, ephemeralContainers=[container("debug")])).pod_sets[0]
    assert [(one.name, one.role) for one in made.containers] == [
        ("init", "init container"),
        ("side", "sidecar"),
        ("main", "container"),
        ("debug", "ephemeral container"),
    ]
    assert [one.name for one in made.holders()] == ["init", "side", "main"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spec": {"containers": [None]}}, "spec.containers[0]: must be a map, is nothing"),
        ({"spec": {"containers": {}}}, "spec.containers: must be a list, is a map"),
        ({"spec": []}, "spec: must be a map, is a list"),
        (
            {"spec": {"containers": [{"name": 7}]}},
            'spec.containers[0].name: must be a string, is a whole number: put it in quotes, "7"',
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": 1.5}}]}},
            "spec.containers[0].resources.limits: must be a map, is a number",
        ),
        ({"metadata": "p"}, "metadata: must be a map, is a string"),
        ({"metadata": {"namespace": True}}, 'metadata.namespace: must be a string, is true or false: put it in quotes, "true"'),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_a_field_of_another_type_is_named_with_what_belongs_there(change: dict[str, Any], text: str) -> None:
    with pytest.raises(MalformedError) as caught:
        opened(pod(container()) | change)
    assert str(caught.value) == text


def test_a_place_is_written_as_kubernetes_writes_it() -> None:
    path = ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu")
    assert dotted(path) == "spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert dotted(("nvidia.com/gpu",)) == "[nvidia.com/gpu]"
    assert dotted(()) == ""


def test_the_page_about_kinds_has_every_one() -> None:
    page = (ROOT / "docs" / "guide" / "kinds.md").read_text(encoding="utf-8")
    rows = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| "))
    wanted = {"Volcano's Job" if kind.group == "batch.volcano.sh" else kind.kind for kind in KINDS}
    assert [name for name in sorted(wanted) if name not in rows] == []
