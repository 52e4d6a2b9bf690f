"""The door against arbitrary bytes and arbitrary JSON: a bad request or a well-formed response, nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpugate.policies.workloads.kinds import KINDS, POD, WorkloadKind, kind_of
from gpugate.webhook.admission.admission_review import BadRequestError
from gpugate.webhook.files.inputs import load_facts
from tests.shared.paths import ROOT
from tests.shared.reviews import CLUSTER, InProcess, admission, patched, pod, policy, well_formed

_FACTS = load_facts([CLUSTER])
#: One door for each mode, shared by all examples: it must outlive them anyway.
_DOORS = [InProcess([policy(mode=mode)], _FACTS) for mode in ("Enforce", "Mutate", "Warn", "DryRun")]
_QUICK = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["Pod", "v1", "CREATE", "UPDATE", "nvidia.com/gpu", "1Gi", "-1", "1e99", "64Gi", "Always", "Memory"]),
)
KEYS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        [
            *("metadata", "spec", "template", "containers", "initContainers", "resources", "limits", "requests", "labels"),
            *("annotations", "name", "volumes", "emptyDir", "tolerations", "env", "volumeMounts", "nvidia.com/gpu", "memory"),
            *("nodeSelector", "affinity", "topologySpreadConstraints", "resourceClaims", "claims", "ownerReferences", "replicas"),
        ]
    ),
)
json_values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=20
)


def check(body: bytes) -> list[str]:
    """Every door answers ``body`` in one of the two ways; gives the tracebacks of rules that broke on the way."""
    broken = []
    for door in _DOORS:
        for endpoint in ("mutate", "validate"):
            before = len(door.lines)
            try:
                answer = door.door.answer(endpoint, body)
            except BadRequestError as error:
                assert str(error)
            else:
                well_formed(answer)
            for line in door.lines[before:]:
                assert line["message"] != "review failed", line["traceback"]
                if line["message"] == "rule failed":
                    broken.append(line["traceback"])
        door.forget_lines()
    return broken


@_QUICK
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff")
def test_any_bytes_are_answered(body: bytes) -> None:
    check(body)


@_QUICK
@given(json_values)
def test_any_json_is_answered(value: Any) -> None:
    check(orjson.dumps(value))


@_QUICK
@given(json_values)
def test_any_json_as_request_is_answered(value: Any) -> None:
    check(orjson.dumps({**admission(pod()), "request": value}))


@_QUICK
@given(st.sampled_from(sorted(admission(pod())["request"])), json_values)
def test_any_json_in_any_field_of_the_request_is_answered(field: str, value: Any) -> None:
    check(orjson.dumps(admission(pod(), **{field: value})))


def stated(kind: WorkloadKind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.versions[-1], "kind": kind.kind}


def api_version(kind: WorkloadKind) -> str:
    return f"{kind.group}/{kind.versions[-1]}" if kind.group else kind.versions[-1]


@_QUICK
@given(st.sampled_from(KINDS), json_values, json_values, st.sampled_from(["CREATE", "UPDATE"]))
def test_any_object_of_a_known_kind_is_answered(kind: WorkloadKind, spec: Any, metadata: Any, operation: str) -> None:
    obj = {"apiVersion": api_version(kind), "kind": kind.kind, "metadata": metadata, "spec": spec}
    check(orjson.dumps(admission(obj, operation=operation, old=obj, kind=stated(kind), name="fuzz")))
    check(orjson.dumps(admission(obj, operation="UPDATE", old={"spec": spec}, kind=stated(kind), name="fuzz")))


def rich_pod() -> dict[str, Any]:
    """A pod with most of the fields that rules read."""
    obj = pod(labels={"kueue.x-k8s.io/queue-name": "team-a-train"}, annotations={"gpugate.io/gang-size": "2"})
    obj["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}]
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    obj["spec"] |= {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "initContainers": [{"name": "warm", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "nodeSelector": {"accelerator": "nvidia"},
        "os": {"name": "linux"},
        "overhead": {"memory": "100Mi"},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "resources": {"limits": {"memory": "64Gi"}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "labelSelector": {"matchLabels": {"a": "b"}}}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
    }
    main = obj["spec"]["containers"][0]
    main["env"] = [{"name": "NCCL_TOPO_FILE", "value": "/etc/topo.xml"}]
    main["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    main["resources"] = {
        "limits": {"nvidia.com/gpu": 2, "memory": "32Gi", "cpu": 8},
        "requests": {"nvidia.com/gpu": 2, "memory": "16Gi", "cpu": "4500m"},
        "claims": [{"name": "gpu", "request": "r"}],
    }
    return obj


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


_RICH = rich_pod()
_PLACES = [path for path in places(_RICH) if path not in {("apiVersion",), ("kind",)}]
_JUNK: list[Any] = [None, True, 0, -1, 1.5, 2**63, "", "x", "-1", "1.5", [], {}, [1], [None], {"a": 1}]


def replaced(base: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    obj = deepcopy(base)
    holder: Any = obj
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    return obj


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    return replaced(_RICH, path, value)


@pytest.mark.parametrize("path", _PLACES, ids=lambda path: ".".join(map(str, path)))
def test_junk_in_any_one_field_of_a_pod_is_answered_and_breaks_no_rule(path: tuple[str | int, ...]) -> None:
    for value in _JUNK:
        assert check(orjson.dumps(admission(with_value(path, value)))) == []


def examples() -> list[dict[str, Any]]:
    """One object of each kind, all of whose pods are kept by its own field of templates."""
    found: dict[Any, dict[str, Any]] = {}
    for path in sorted((ROOT / "examples" / "workloads").glob("*.yaml")):
        for obj in YAML(typ="safe").load_all(path):
            kind = kind_of(obj["apiVersion"], obj["kind"]) if obj else None
            if kind is not None and kind is not POD:
                found.setdefault(kind, orjson.loads(orjson.dumps(obj)))
    return [found[kind] for kind in KINDS if kind in found]


@pytest.mark.parametrize("obj", examples(), ids=lambda obj: obj["apiVersion"].replace("/", "-") + "-" + obj["kind"])
def test_junk_on_the_way_to_the_pods_is_answered_and_breaks_no_rule(obj: dict[str, Any]) -> None:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    for path in places(obj):
        if path[0] == "spec" and "containers" not in path[:-1]:
            for value in (None, True, -1, 1.5, "x", [], [None], {"a": 1}):
                new = replaced(obj, path, value)
                old = obj | {"status": {"replicaStatuses": {"Worker": {"active": 1}}, "readyReplicas": 1}}
                assert check(orjson.dumps(admission(new, kind=stated(kind)))) == [], path
                assert check(orjson.dumps(admission(new, operation="UPDATE", old=old, kind=stated(kind)))) == [], path
                assert check(orjson.dumps(admission(old, operation="UPDATE", old=new, kind=stated(kind)))) == [], path


@_QUICK
@given(st.sampled_from(_PLACES), json_values, st.sampled_from(_PLACES), json_values)
def test_a_patch_applies_and_leaves_nothing_more_to_patch(
    path: tuple[str | int, ...], value: Any, other: tuple[str | int, ...], second: Any
) -> None:
    obj = with_value(path, value)
    try:
        holder: Any = obj
        for part in other[:-1]:
            holder = holder[part]
        holder[other[-1]] = second
    except (KeyError, IndexError, TypeError):
        pass
    obj |= {"apiVersion": "v1", "kind": "Pod"}
    response = _DOORS[0].ask(admission(obj, name="fuzz"))
    after = patched(obj, response)
    again = _DOORS[0].ask(admission(after, name="fuzz"))
    assert patched(after, again) == after
