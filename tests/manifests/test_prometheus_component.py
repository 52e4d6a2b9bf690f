"""The component that lets the controller reach a Prometheus: one way more, and nothing in the base that opens it by itself."""

from __future__ import annotations

import jsonpatch
from ruamel.yaml import YAML

from tests.manifests.installation import BASE, kustomization, read, the

FOLDER = BASE.parent / "prometheus"


def test_the_option_goes_to_the_controllers_program_and_the_way_to_its_pods() -> None:
    component = read(FOLDER / "kustomization.yaml")[0]
    assert component["kind"] == "Component"
    assert component["resources"] == ["networkpolicy.yaml"]
    (patch,) = component["patches"]
    deployment = the("Deployment", "controller")
    assert patch["target"] == {"kind": "Deployment", "name": deployment["metadata"]["name"]}
    patched = jsonpatch.apply_patch(deployment, YAML(typ="safe").load(patch["patch"]))
    arguments = patched["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[:-1] == deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-1].startswith("--prometheus=http://")
    (policy,) = read(FOLDER / "networkpolicy.yaml")
    assert policy["spec"]["podSelector"] == the("NetworkPolicy", "controller")["spec"]["podSelector"]
    assert policy["spec"]["policyTypes"] == ["Egress"]
    (way,) = policy["spec"]["egress"]
    assert way["to"], "to everybody would be no narrow way"
    assert [str(one["port"]) for one in way["ports"]] == [arguments[-1].rpartition(":")[2]]


def test_the_base_opens_no_way_to_a_prometheus() -> None:
    assert not any("prometheus" in name for name in kustomization()["resources"])
    ports = [port["port"] for way in the("NetworkPolicy", "controller")["spec"]["egress"] for port in way["ports"]]
    assert sorted(set(ports)) == [53, 443, 6443]
