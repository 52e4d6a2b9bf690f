"""Who applies an object, whatever its managed fields say."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.kube.managers import is_gitops_managed


@pytest.mark.parametrize("manager", [None, 7, True, [], {}, ["argocd-controller"], {"argocd-controller": 1}, "kubectl"])
def test_a_manager_that_is_no_tool_of_gitops_is_none(manager: Any) -> None:
    assert not is_gitops_managed({"metadata": {"managedFields": [{"manager": manager}]}})


def test_a_tool_of_gitops_is_found_behind_managers_of_any_type() -> None:
    entries = [{"manager": []}, "x", {"manager": "kustomize-controller"}]
    assert is_gitops_managed({"metadata": {"managedFields": entries}})
