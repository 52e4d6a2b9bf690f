"""An UPDATE that only deleting and making anew could bring about is judged before the API refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.framework.decision import Phase
from gpugate.policies.kube.fields import clone
from tests.shared.builders import bind, container, decided, reasons, templated

_POLICY = bind(mode="Enforce")


def _live(git: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """What comes of applying ``git``, with what controllers wrote since."""
    live = clone(git)
    decided(live, _POLICY)
    live["spec"] |= spec
    live["metadata"]["uid"] = "1"
    live["status"] = {"startTime": "2026-01-01T00:00:00Z", "active": 1}
    return live


def _sent(git: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
    """The UPDATE that comes of applying ``git`` over ``live``."""
    return {**live, "metadata": {**live["metadata"], **git["metadata"]}, "spec": {**live["spec"], **git["spec"]}}


def _overcommitted() -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1, "memory": "64Gi"}
    return {"name": "main", "resources": {"limits": limits, "requests": {**limits, "memory": "8Gi"}}}


def _mutating(git: dict[str, Any], live: dict[str, Any]) -> list[tuple[str, str, str]]:
    decision = decided(_sent(git, live), _POLICY, old=clone(live), phase=Phase.MUTATE)
    return [one for one in reasons(decision) if one[2] == "deny"]


def test_a_job_whose_new_template_would_be_refused_is_refused_before_the_api_asks_to_delete_it() -> None:
    live = _live(templated("Job", container(), parallelism=1))
    assert _mutating(templated("Job", _overcommitted(), parallelism=1), live) == [("host-memory", "Overcommit", "deny")]


def test_a_job_whose_new_template_is_fine_is_left_to_the_api() -> None:
    live = _live(templated("Job", container(), parallelism=1))
    assert _mutating(templated("Job", container(image="other"), parallelism=1), live) == []


def test_a_job_that_git_states_as_before_is_no_job_made_anew_whatever_the_policy_says_by_now() -> None:
    git = templated("Job", container(memory=None), parallelism=1)
    live = _live(git)
    sent = _sent(git, live)
    strict = bind({"queue": {"required": True}, "shared-memory": {"maxSize": "1Gi"}}, mode="Enforce")
    decision = decided(sent, strict, old=clone(live), phase=Phase.MUTATE)
    assert [one for one in reasons(decision) if one[2] == "deny"] == []


def test_an_old_sin_that_is_sent_with_another_image_is_refused_for_nobody_could_make_it_anew() -> None:
    live = templated("Job", _overcommitted(), parallelism=1)
    git = templated("Job", {**_overcommitted(), "image": "other"}, parallelism=1)
    assert _mutating(git, live) == [("host-memory", "Overcommit", "deny")]


@pytest.mark.parametrize("field", ["nodeSelector", "tolerations", "affinity"])
def test_what_the_api_lets_change_in_a_suspended_job_is_none_of_it(field: str) -> None:
    live = templated("Job", _overcommitted(), parallelism=1, suspend=True)
    started = clone(live)
    started["spec"]["suspend"] = False
    started["spec"]["template"]["spec"][field] = [] if field == "tolerations" else {"a": "b"}
    decision = decided(started, _POLICY, old=live, phase=Phase.MUTATE)
    assert [one for one in reasons(decision) if one[2] == "deny"] == []


def test_a_suspended_job_may_get_other_resources_where_the_api_allows_it() -> None:
    live = templated("Job", container(), parallelism=1, suspend=True)
    sent = templated("Job", _overcommitted(), parallelism=1, suspend=True)
    decision = decided(sent, _POLICY, old=live, phase=Phase.MUTATE)
    assert [one for one in reasons(decision) if one[2] == "deny"] == []


def test_a_suspended_job_with_another_image_is_one_made_anew() -> None:
    live = templated("Job", container(), parallelism=1, suspend=True)
    sent = templated("Job", {**_overcommitted(), "image": "other"}, parallelism=1, suspend=True)
    decision = decided(sent, _POLICY, old=live, phase=Phase.MUTATE)
    assert ("host-memory", "Overcommit", "deny") in reasons(decision)


@pytest.mark.parametrize(
    ("kind", "field", "before", "after"),
    [
        ("Deployment", "selector", {"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}}),
        ("StatefulSet", "serviceName", "one", "two"),
        ("StatefulSet", "volumeClaimTemplates", [], [{"metadata": {"name": "data"}}]),
    ],
)
def test_fixed_fields_of_other_kinds_count_too(kind: str, field: str, before: Any, after: Any) -> None:
    live = _live(templated(kind, container(), replicas=1, **{field: before}))
    assert _mutating(templated(kind, _overcommitted(), replicas=1, **{field: after}), live) == [
        ("host-memory", "Overcommit", "deny")
    ]
    # With the field as it is the UPDATE is the validating door's business.
    assert _mutating(templated(kind, _overcommitted(), replicas=1, **{field: before}), live) == []


def _job_set(*containers: dict[str, Any], suspend: bool = False) -> dict[str, Any]:
    template = {"spec": {"parallelism": 1, "template": {"spec": {"containers": list(containers)}}}}
    spec = {"suspend": suspend, "replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": spec,
    }


def test_the_templates_of_other_kinds_that_are_made_once_count_too() -> None:
    live = _live(_job_set(container()))
    assert _mutating(_job_set(_overcommitted()), live) == [("host-memory", "Overcommit", "deny")]


def test_the_refusal_is_found_once_where_both_doors_are_asked_at_once() -> None:
    live = _live(templated("Job", container(), parallelism=1))
    git = templated("Job", _overcommitted(), parallelism=1)
    decision = decided(_sent(git, live), _POLICY, old=clone(live))
    assert [one for one in reasons(decision) if one[2] == "deny"] == [("host-memory", "Overcommit", "deny")]


def test_a_template_that_operators_have_spelt_anew_is_no_other_one_however_little_the_policy_of_today_likes_it() -> None:
    main = {**_overcommitted(), "env": [{"name": "A", "value": ""}]}
    task = {"name": "train", "replicas": 2, "template": {"spec": {"containers": [main]}}}
    git = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": {"minAvailable": 2, "tasks": [task]},
    }
    live = clone(git)
    kept = live["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    kept["resources"]["limits"]["nvidia.com/gpu"] = "1"
    del kept["env"][0]["value"]
    assert _mutating(git, live) == []
    other = clone(git)
    other["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = "other"
    assert _mutating(other, live) == [("host-memory", "Overcommit", "deny")]
