"""What users are told of changes and refusals, in each mode and as quietly as the policy says."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.workloads.recorded_edits import ANNOTATION
from tests.shared.builders import container, pod, templated
from tests.shared.reviews import InProcess, admission, patched, policy

#: What the apiserver leaves whole of each warning, however many there are. Characters.
_WHOLE = 256


def _told(obj: dict[str, Any], endpoint: str = "mutate", **spec: Any) -> list[str]:
    return list(InProcess([policy(**spec)]).ask(admission(obj), endpoint).get("warnings", []))


def _large() -> dict[str, Any]:
    return templated("Job", *(container(f"worker-with-a-long-name-{number}", memory=None) for number in range(8)))


def test_one_warning_says_the_first_changes_and_how_many_others_there_are() -> None:
    (warning,) = _told(_large())
    assert warning.startswith("gpugate changed ")
    first, _, rest = warning.rpartition("; +")
    assert len(first) < 200
    number, _, place = rest.partition(" more, see annotation ")
    assert int(number) > 0
    assert place == ANNOTATION
    assert len(warning) <= _WHOLE


def test_few_changes_are_all_said() -> None:
    (warning,) = _told(pod(container()), mode=None, rules={"tolerations": {}})
    assert warning == "gpugate changed tolerations: toleration nvidia.com/gpu:NoSchedule"


def test_the_annotation_that_the_warning_names_has_the_changes() -> None:
    for obj in (pod(container()), templated("Deployment", container())):
        response = InProcess([policy()]).ask(admission(obj))
        assert "/spec/" in patched(obj, response)["metadata"]["annotations"][ANNOTATION]


def test_a_second_review_of_the_changed_object_changes_nothing_and_says_nothing() -> None:
    for obj in (pod(container()), templated("Deployment", container())):
        door = InProcess([policy()])
        after = patched(obj, door.ask(admission(obj)))
        again = door.ask(admission(after))
        assert "patch" not in again
        assert "warnings" not in again


def test_a_pod_of_a_controller_gets_the_annotation_and_nobody_a_warning() -> None:
    obj = pod(container())
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    response = InProcess([policy()]).ask(admission(obj))
    assert "warnings" not in response
    assert ANNOTATION in patched(obj, response)["metadata"]["annotations"]


def test_warn_changes_nothing_and_says_what_it_would_change_and_refuse() -> None:
    obj = pod(container(memory="16Gi"))
    obj["spec"]["containers"][0]["resources"]["requests"] = {"memory": "1Gi"}
    door = InProcess([policy(mode="Warn")])
    changed, refused = door.ask(admission(obj)), door.ask(admission(obj), "validate")
    assert "patch" not in changed
    assert changed["warnings"][0].startswith("gpugate would change ")
    assert refused["allowed"]
    assert any(warning.startswith("would be refused: host-memory: ") for warning in refused["warnings"])
    assert "tolerations.warn-change" in changed["auditAnnotations"]
    assert "Overcommit" in refused["auditAnnotations"]["host-memory.warn-deny"]
    assert door.count('gpugate_changes_total{mode="warn",rule="tolerations"}') == 1
    assert door.count('gpugate_refusals_total{dry_run="false",mode="Warn",rule="host-memory"}') == 1


@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
def test_dryrun_tells_nobody_even_of_a_misspelt_exemption(endpoint: str) -> None:
    obj = pod(container(), annotations={"gpugate.io/exempt": "nmua", "gpugate.io/exempt-reason": "tests"})
    assert _told(obj, endpoint, mode="DryRun") == []
    assert any("nmua" in warning for warning in _told(obj, "validate", mode="Mutate"))


@pytest.mark.parametrize(
    ("warnings", "changes", "findings", "refusals"),
    [
        ("All", True, True, True),
        ("Findings", False, True, True),
        ("Refusals", False, False, True),
        ("None", False, False, False),
    ],
)
@pytest.mark.parametrize("mode", ["Mutate", "Warn"])
def test_a_policy_decides_of_what_users_are_warned(mode: str, warnings: str, changes: bool, findings: bool, refusals: bool) -> None:
    obj = pod(container(memory="16Gi"), annotations={"gpugate.io/exempt": "nmua", "gpugate.io/exempt-reason": "tests"})
    obj["spec"]["containers"][0]["resources"]["requests"] = {"memory": "1Gi"}
    assert bool(_told(obj, mode=mode, warnings=warnings)) == changes
    told = _told(obj, "validate", mode=mode, warnings=warnings)
    assert any("nmua" in warning for warning in told) == findings
    assert any("host-memory: " in warning for warning in told) == refusals


def test_a_quiet_policy_for_one_rule_leaves_the_others_loud() -> None:
    quiet = policy("quiet", priority=1, mode=None, warnings="None", rules={"tolerations": {}})
    (warning,) = InProcess([quiet, policy("all")]).ask(admission(pod(container())))["warnings"]
    assert "tolerations" not in warning
    assert "shared-memory" in warning
