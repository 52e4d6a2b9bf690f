"""What gets at accelerators without asking, and the words by which their nodes are told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.kube.taints import _ACCELERATOR_WORDS, MARKING_WORDS, marks_accelerators, names_accelerators, words_in
from gpugate.policies.workloads.device_access import is_device_file, may_access_devices
from tests.shared.builders import opened

TOLERATING = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
TAKING = {"containers": [{"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}
_PARTS = st.sampled_from([*sorted(_ACCELERATOR_WORDS), "x", "X", "-", ".", "/", "_", "1", "com", "Team", "node"])


def a_pod(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata},
        "spec": {"containers": [{"name": "c"}], **spec},
    }


def made_by(kind: str, controller: bool = True) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": controller}]


@given(st.lists(st.one_of(_PARTS, _PARTS.map(str.title), _PARTS.map(str.upper)), max_size=6).map("".join))
def test_the_apiserver_finds_the_words_that_python_finds(text: str) -> None:
    assert (re.search(MARKING_WORDS, text) is not None) is not _ACCELERATOR_WORDS.isdisjoint(words_in(text))


@pytest.mark.parametrize(("key", "value"), [("kubernetes.io/arch", "amd64"), ("network.nvidia.com/x", ""), ("", "gpu"), ("a", "b")])
def test_words_that_stand_for_no_accelerator(key: str, value: str) -> None:
    assert not names_accelerators(key, value)
    assert not marks_accelerators(key, value)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/dev/nvidia0", True),
        ("/dev//nvidia-uvm", True),
        ("//dev/./nvidiactl", True),
        ("/dev/accel/accel0", True),
        ("/dev/nvme0", False),
        ("/dev", False),
        ("/mnt/dev/nvidia0", False),
        ("", False),
    ],
)
def test_device_files_are_known_however_they_are_spelled(path: str, is_one: bool) -> None:
    assert is_device_file(path) is is_one


def test_pods_that_name_a_taint_are_looked_at_unless_a_daemon_set_made_them() -> None:
    assert may_access_devices(opened(a_pod(TOLERATING)))
    assert may_access_devices(opened(a_pod(TOLERATING, ownerReferences=made_by("ReplicaSet"))))
    assert may_access_devices(opened(a_pod(TOLERATING, ownerReferences=made_by("DaemonSet", controller=False))))
    assert not may_access_devices(opened(a_pod(TOLERATING, ownerReferences=made_by("DaemonSet"))))
    assert not may_access_devices(opened(a_pod({**TOLERATING, "priorityClassName": "system-node-critical"})))


def test_pods_that_name_devices_are_looked_at_whoever_made_them() -> None:
    assert may_access_devices(opened(a_pod(TAKING, ownerReferences=made_by("DaemonSet"))))
    assert may_access_devices(opened(a_pod({**TAKING, "priorityClassName": "system-node-critical"})))


@pytest.mark.parametrize("spec", [{}, {"tolerations": [{"operator": "Exists"}]}, {"nodeSelector": {"disk": "ssd"}}])
def test_other_pods_are_not_looked_at(spec: dict[str, Any]) -> None:
    assert not may_access_devices(opened(a_pod(spec)))


@pytest.mark.parametrize("junk", [[], {}, 1, None, True])
def test_values_of_the_wrong_type_name_nothing(junk: Any) -> None:
    env = [{"name": junk, "value": "all"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": None}]
    spec = {
        "containers": [{"name": "c", "env": env, "volumeMounts": [{"name": "v", "mountPath": junk}]}],
        "volumes": [{"name": "v", "hostPath": junk}, {"name": "w", "hostPath": {"path": junk}}],
        "tolerations": [{"key": junk, "value": junk}],
        "priorityClassName": junk,
    }
    assert not may_access_devices(opened(a_pod(spec)))
