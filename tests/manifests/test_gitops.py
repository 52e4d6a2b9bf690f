"""The examples for Argo CD and Flux: what they refer to is there, gpugate comes first, and no secret or CA is in Git."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpugate.policies.policy.models import parse_policy
from tests.manifests.installation import ROOT, read

GITOPS = ROOT / "manifests" / "gitops"
FILES = sorted(GITOPS.rglob("*.yaml"))
ORDER = ("gpugate", "gpugate-policies", "workloads")


def applications() -> dict[str, Any]:
    found = [document for path in (GITOPS / "argocd" / "apps").glob("*.yaml") for document in read(path)]
    return {one["metadata"]["name"]: one for one in found}


def kustomizations() -> dict[str, Any]:
    found = [document for path in (GITOPS / "flux").glob("*.yaml") for document in read(path)]
    return {one["metadata"]["name"]: one for one in found if one["apiVersion"].startswith("kustomize.toolkit.fluxcd.io/")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GITOPS)))
def test_both_versions_of_yaml_read_every_file_alike_and_none_has_a_ca(path: Any) -> None:
    assert read(path, "1.1") == read(path, "1.2")
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^[^#]*caBundle", text, re.MULTILINE)
    assert not re.search(r"^kind: Secret$", text, re.MULTILINE)


def test_applications_come_in_waves() -> None:
    waves = {name: int(one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]) for name, one in applications().items()}
    assert tuple(sorted(waves, key=waves.__getitem__)) == ORDER
    assert len(set(waves.values())) == len(ORDER)


def test_kustomizations_depend_on_each_other() -> None:
    found = kustomizations()
    depends = {name: [one["name"] for one in found[name]["spec"].get("dependsOn", [])] for name in ORDER}
    assert depends == {"gpugate": [], "gpugate-policies": ["gpugate"], "workloads": ["gpugate-policies"]}
    assert found["gpugate"]["spec"]["wait"] is True
    assert not any(one["spec"].get("force") for one in found.values())


def test_the_folders_that_are_applied_are_there() -> None:
    paths = [one["spec"]["source"]["path"] for name, one in applications().items() if name != "workloads"]
    paths += [one["spec"]["path"] for name, one in kustomizations().items() if name != "workloads"]
    assert paths
    assert all((ROOT / path / "kustomization.yaml").is_file() for path in paths)
    (root,) = read(GITOPS / "argocd" / "app-of-apps.yaml")
    assert (ROOT / root["spec"]["source"]["path"]) == GITOPS / "argocd" / "apps"


def test_every_source_is_stated() -> None:
    sources = {one["metadata"]["name"] for one in read(GITOPS / "flux" / "sources.yaml")}
    assert {one["spec"]["sourceRef"]["name"] for one in kustomizations().values()} == sources


def test_the_policy_parses_and_changes_nothing_yet() -> None:
    (policy,) = read(GITOPS / "policies" / "default.yaml")
    assert parse_policy(policy).name == "default"
    assert policy["spec"] == {"profile": "recommended", "mode": "DryRun"}


def test_flux_checks_the_policy_that_there_is() -> None:
    (check,) = kustomizations()["gpugate-policies"]["spec"]["healthChecks"]
    (policy,) = read(GITOPS / "policies" / "default.yaml")
    assert check == {"apiVersion": policy["apiVersion"], "kind": policy["kind"], "name": policy["metadata"]["name"]}
