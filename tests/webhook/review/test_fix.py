"""After `gpugate fix`, the webhook has nothing left to change: for every example, whoever applies it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.framework.decision import Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from gpugate.webhook.files.documents import Document, expand_lists, parse, read_all
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.review.entry import Outcome
from gpugate.webhook.review.fix import Fixed, fix, open_files
from tests.shared.reviews import CLUSTER, POLICY, WORKLOADS

FILES = sorted(WORKLOADS.glob("*.yaml"))
ARGO_CD = {"annotations": {"argocd.argoproj.io/tracking-id": "team:apps/Deployment:team-a/w"}}
FLUX = {"labels": {"kustomize.toolkit.fluxcd.io/name": "team", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}
APPLIED_BY = {"nobody's Git": {}, "Argo CD": ARGO_CD, "Flux": FLUX}


@pytest.fixture(scope="module")
def snapshot() -> ClusterSnapshot:
    return load_facts([CLUSTER, WORKLOADS / "26-dra-claim.yaml"])


@pytest.fixture(scope="module")
def policies() -> PolicySet:
    return PolicySet(load_policies([POLICY]))


def fixed(file: Path, policies: PolicySet, snapshot: ClusterSnapshot) -> Fixed:
    (found,) = fix(open_files([str(file)], [str(file)]), policies, snapshot)
    return found


def mutated(obj: dict[str, Any], policies: PolicySet, snapshot: ClusterSnapshot) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What /mutate makes of the creation of ``obj``, and by which patch."""
    kind = kind_of(obj["apiVersion"], obj["kind"])
    after = clone(obj)
    if kind is None:
        return after, []
    workload = open_workload(kind, after, snapshot)
    bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
    return after, decide(workload, bound, snapshot, Phase.MUTATE).patch


def objects(text: str) -> list[dict[str, Any]]:
    return [one.value for one in expand_lists(parse("", text)) if isinstance(one, Document)]


def with_metadata(obj: dict[str, Any], more: dict[str, dict[str, str]]) -> dict[str, Any]:
    metadata = dict(obj["metadata"])
    for key, values in more.items():
        metadata[key] = {**(metadata.get(key) or {}), **values}
    return {**obj, "metadata": metadata}


def without_record(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(obj["metadata"])
    annotations = {key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != ANNOTATION}
    return {**obj, "metadata": {**metadata, "annotations": annotations} if annotations else metadata}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("applied_by", APPLIED_BY)
def test_the_webhook_changes_nothing_in_a_fixed_example(
    file: Path, applied_by: str, policies: PolicySet, snapshot: ClusterSnapshot
) -> None:
    for obj in objects(fixed(file, policies, snapshot).after):
        _, patch = mutated(with_metadata(obj, APPLIED_BY[applied_by]), policies, snapshot)
        assert patch == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_webhook_changes_nothing_in_the_pods_of_a_fixed_example(
    file: Path, policies: PolicySet, snapshot: ClusterSnapshot
) -> None:
    for obj in objects(fixed(file, policies, snapshot).after):
        kind = kind_of(obj["apiVersion"], obj["kind"])
        for pods in open_workload(kind, obj, snapshot).pod_sets if kind is not None and kind.kind != "Pod" else ():
            if not pods.is_whole:
                continue  # Made from a runtime, which Git keeps elsewhere.
            owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"], "controller": True}
            metadata = {**clone(pods.root.get("metadata") or {}), "namespace": obj["metadata"]["namespace"], "name": "p"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [owner]}, "spec": clone(pods.spec)}
            assert mutated(pod, policies, snapshot)[1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_fixed_example_is_what_the_webhook_would_have_made_of_it(
    file: Path, policies: PolicySet, snapshot: ClusterSnapshot
) -> None:
    result = fixed(file, policies, snapshot)
    before = [one.value for one in read_all([str(file)]) if isinstance(one, Document)]
    wanted = [without_record(mutated(obj, policies, snapshot)[0]) for obj in before]
    assert [without_record(obj) for obj in objects(result.after)] == wanted
    assert ANNOTATION not in result.after
    assert not result.unwritten


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_of_an_example_is_still_there_but_those_that_say_what_is_changed(
    file: Path, policies: PolicySet, snapshot: ClusterSnapshot
) -> None:
    result = fixed(file, policies, snapshot)
    lines = difflib.ndiff(result.before.splitlines(), result.after.splitlines())
    lost = [line[2:] for line in lines if line.startswith("- ")]
    replaced = [op["path"] for entry in result.entries for op in entry.patch if op["op"] in {"replace", "remove"}]
    assert len(lost) <= len(replaced)
    assert not any(line.lstrip().startswith("#") for line in lost)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fixing_a_fixed_example_changes_not_one_byte(
    file: Path, policies: PolicySet, snapshot: ClusterSnapshot, tmp_path: Path
) -> None:
    once = tmp_path / file.name
    once.write_bytes(fixed(file, policies, snapshot).content)
    again = fixed(once, policies, snapshot)
    assert again.content == once.read_bytes()
    assert not again.changes


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_another_parser_reads_a_fixed_example_as_its_patch_says(file: Path, policies: PolicySet, snapshot: ClusterSnapshot) -> None:
    result = fixed(file, policies, snapshot)
    wanted = []
    entries = iter(result.entries)
    for document in yaml.safe_load_all(result.before):
        if document["kind"] == "List":
            document["items"] = [jsonpatch.apply_patch(item, next(entries).patch) for item in document["items"]]
            wanted.append(document)
        else:
            wanted.append(jsonpatch.apply_patch(document, next(entries).patch))
    assert list(yaml.safe_load_all(result.after)) == wanted


def test_the_examples_show_both_what_can_be_fixed_and_what_cannot(policies: PolicySet, snapshot: ClusterSnapshot) -> None:
    results = [fixed(file, policies, snapshot) for file in FILES]
    assert sum(one.changes for one in results) >= 20
    assert sum(entry.outcome is Outcome.REFUSED for one in results for entry in one.entries) >= 5


@pytest.mark.parametrize("tracked", [ARGO_CD, FLUX])
def test_what_git_states_is_overwritten_where_git_is_kept(
    tracked: dict[str, dict[str, str]], policies: PolicySet, snapshot: ClusterSnapshot, tmp_path: Path
) -> None:
    obj = with_metadata(objects((WORKLOADS / "12-spot-training-job.yaml").read_text())[0], tracked)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(obj))
    result = fixed(file, policies, snapshot)
    keys = [one["key"] for one in objects(result.after)[0]["spec"]["template"]["spec"]["tolerations"]]
    assert keys == ["spot", "nvidia.com/gpu", "sku"]
    # At the door the same object is left to its pods, for a list that Git states would show as drift.
    at_the_door, _ = mutated(obj, policies, snapshot)
    assert [one["key"] for one in at_the_door["spec"]["template"]["spec"]["tolerations"]] == ["spot"]
