"""The pieces around the webhook: read alike by everyone, in agreement with each other, and with NVIDIA's own words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpugate.policies.policy.models import parse_policy
from gpugate.policies.rules.registry import RULES
from tests.manifests.installation import BASE, ROOT, read

CLUSTER = ROOT / "manifests" / "cluster"
FILES = sorted(CLUSTER.rglob("*.yaml"))
PIECES = ("device-plugin", "kueue", "mig", "monitoring", "nodes", "policy", "priorities", "tenants")
#: What NVIDIA's device plugin v0.20 reads; it says nothing of what it does not know.
PLUGIN_FIELDS = {"version", "flags", "resources", "sharing", "imex"}
SHARING = {"timeSlicing", "mps"}
SHARED = {"renameByDefault", "failRequestsGreaterThanOne", "resources"}


def objects(piece: str) -> list[dict[str, Any]]:
    """Every Kubernetes object in the files of a piece."""
    found = [one for path in sorted((CLUSTER / piece).rglob("*.yaml")) for one in read(path) if "kind" in one]
    return [one for one in found if one["kind"] not in {"Kustomization", "Component"}]


def of_kind(piece: str, kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in objects(piece) if one["kind"] == kind}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CLUSTER)))
def test_both_versions_of_yaml_read_every_file_alike(path: Any) -> None:
    assert read(path, "1.1") == read(path, "1.2")


def test_every_piece_is_told_of_and_says_what_to_adapt_and_where_its_facts_come_from() -> None:
    assert tuple(sorted(path.name for path in CLUSTER.iterdir() if path.is_dir())) == PIECES
    listed = (CLUSTER / "README.md").read_text(encoding="utf-8")
    for piece in PIECES:
        assert f"]({piece}/README.md)" in listed
        text = (CLUSTER / piece / "README.md").read_text(encoding="utf-8")
        assert re.search(r"^Serves: ", text, re.MULTILINE), piece
        assert re.search(r"^Sources?: ", text, re.MULTILINE), piece
        assert re.search(r"\b[Tt]o adapt\b", text), piece


def test_a_kustomization_lists_every_file_beside_it() -> None:
    for path in CLUSTER.rglob("kustomization.yaml"):
        (found,) = read(path)
        listed = set(found.get("resources", ()))
        there = {one.name for one in path.parent.glob("*.yaml")} - {"kustomization.yaml", "config.yaml"}
        there -= {"values.yaml", "gpu-operator-values.yaml"}
        assert {name for name in listed if name.endswith(".yaml")} == there, path


@pytest.mark.parametrize("path", sorted((CLUSTER / "device-plugin" / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_says_only_what_the_device_plugin_reads(path: Any) -> None:
    (config,) = read(path)
    assert config.keys() <= PLUGIN_FIELDS
    assert config["version"] == "v1"
    assert config["flags"].keys() == {"migStrategy"}
    assert config["flags"]["migStrategy"] in {"none", "single", "mixed"}
    sharing = config.get("sharing", {})
    assert sharing.keys() <= SHARING
    assert len(sharing) <= 1
    assert not sharing or config["flags"]["migStrategy"] == "none"
    for how in sharing.values():
        assert how.keys() <= SHARED
        assert all(one.keys() == {"name", "replicas"} and one["replicas"] >= 2 for one in how["resources"])


def test_every_configuration_is_in_the_config_map_under_its_own_name() -> None:
    (found,) = read(CLUSTER / "device-plugin" / "kustomization.yaml")
    files = found["configMapGenerator"][0]["files"]
    there = (CLUSTER / "device-plugin" / "configs").glob("*.yaml")
    assert sorted(files) == sorted(f"{path.stem}=configs/{path.name}" for path in there)
    for name in ("values.yaml", "gpu-operator-values.yaml"):
        (values,) = read(CLUSTER / "device-plugin" / name)
        config = values.get("config") or values["devicePlugin"]["config"]
        assert config["name"] == found["configMapGenerator"][0]["name"]
        assert f"{config['default']}=configs/{config['default']}.yaml" in files


def test_the_operator_is_told_the_names_that_the_pieces_have() -> None:
    (values,) = read(CLUSTER / "device-plugin" / "gpu-operator-values.yaml")
    for piece, config, key in (
        ("mig", values["migManager"]["config"], "config.yaml"),
        ("monitoring/dcgm-metrics", values["dcgmExporter"]["config"], "dcgm-metrics.csv"),
    ):
        (found,) = read(CLUSTER / piece / "kustomization.yaml")
        (made,) = found["configMapGenerator"]
        assert (made["name"], made["files"]) == (config["name"], [key])
    assert values["migManager"]["config"]["default"] in read(CLUSTER / "mig" / "config.yaml")[0]["mig-configs"]


def test_no_configuration_cuts_more_from_a_card_than_it_has() -> None:
    for name, entries in read(CLUSTER / "mig" / "config.yaml")[0]["mig-configs"].items():
        for entry in entries:
            assert entry.keys() <= {"devices", "mig-enabled", "mig-devices"}
            counts = entry.get("mig-devices", {})
            assert entry["mig-enabled"] == bool(counts), name
            sizes = [(count, *map(int, re.findall(r"\d+", profile))) for profile, count in counts.items()]
            # A compute slice of a 40 GB card has 5 GB or a little more, one of an 80 GB card 10 GB.
            card = 80 if all(memory / slices >= 10 for _, slices, memory in sizes) else 40
            assert sum(count * slices for count, slices, _ in sizes) <= 7, name
            assert sum(count * memory for count, _, memory in sizes) <= card, name


def test_both_sorts_of_priorities_agree_and_stay_below_the_systems_own() -> None:
    pods, workloads = of_kind("priorities", "PriorityClass"), of_kind("kueue", "WorkloadPriorityClass")
    assert {name: one["value"] for name, one in pods.items()} == {name: one["value"] for name, one in workloads.items()}
    assert all(0 < one["value"] < 1_000_000_000 and one["globalDefault"] is False for one in pods.values())
    ending = {name for name, one in pods.items() if one["preemptionPolicy"] != "Never"}
    assert ending == {"gpu-inference"}


def test_queues_flavors_topology_and_nodes_name_each_other_rightly() -> None:
    flavors, queues = of_kind("kueue", "ResourceFlavor"), of_kind("kueue", "ClusterQueue")
    script = (CLUSTER / "nodes" / "label-nodes.sh").read_text(encoding="utf-8")
    (topology,) = of_kind("kueue", "Topology").values()
    levels = [one["nodeLabel"] for one in topology["spec"]["levels"]]
    assert all(f'"{level}=$' in script for level in levels[:-1])
    assert levels[-1] == "kubernetes.io/hostname"
    assert {one["spec"].get("topologyName") for one in flavors.values()} == {topology["metadata"]["name"]}
    pools = {one["spec"]["template"]["metadata"]["labels"]["gpugate.io/pool"] for one in of_kind("nodes", "NodePool").values()}
    assert {one["spec"]["nodeLabels"]["gpugate.io/pool"] for one in flavors.values()} <= pools
    for one in queues.values():
        (group,) = one["spec"]["resourceGroups"]
        assert set(group["coveredResources"]) == {"nvidia.com/gpu", "cpu", "memory"}
        assert {flavor["name"] for flavor in group["flavors"]} <= flavors.keys()
        assert one["spec"]["cohortName"] in of_kind("kueue", "Cohort")
    locals_ = of_kind("tenants", "LocalQueue")
    assert {one["spec"]["clusterQueue"] for one in locals_.values()} == queues.keys()
    (component,) = read(CLUSTER / "tenants" / "queues" / "kustomization.yaml")
    (default,) = re.findall(r"value: (\S+)", component["patches"][0]["patch"])
    assert default in locals_


def test_queues_and_policy_select_the_namespaces_that_tenants_get() -> None:
    labels = of_kind("tenants", "Namespace")["team"]["metadata"]["labels"]
    policy = of_kind("policy", "GPUPolicy")["tenants"]
    selectors = [one["spec"]["namespaceSelector"] for one in of_kind("kueue", "ClusterQueue").values()]
    for selector in (*selectors, policy["spec"]["match"]["namespaceSelector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_a_quota_counts_devices_in_the_one_way_that_counts() -> None:
    hard = of_kind("tenants", "ResourceQuota")["team"]["spec"]["hard"]
    assert "requests.nvidia.com/gpu" in hard
    assert all(name.startswith("requests.") for name in hard if "/" in name)


def test_limits_have_nothing_that_would_cut_a_gpu_container_down() -> None:
    assert {one["type"] for one in of_kind("tenants", "LimitRange")["team"]["spec"]["limits"]} == {"PersistentVolumeClaim"}


def test_both_policies_parse_and_name_rules_that_there_are() -> None:
    policies = of_kind("policy", "GPUPolicy")
    assert [parse_policy(one).name for one in policies.values()] == ["everybody", "tenants"]
    assert policies["everybody"]["spec"] == {"profile": "recommended", "mode": "DryRun"}
    assert policies["tenants"]["spec"]["rules"].keys() <= {rule.id for rule in RULES}
    aligned = policies["tenants"]["spec"]["rules"]["numa"]["alignedNodes"]["key"]
    assert f"{aligned}=true" in (CLUSTER / "nodes" / "label-nodes.sh").read_text(encoding="utf-8")


def test_the_policy_for_tenants_gives_each_sort_of_work_the_classes_that_the_pieces_have() -> None:
    rules = of_kind("policy", "GPUPolicy")["tenants"]["spec"]["rules"]
    given = {sort: rules["priority"][sort] for sort in ("training", "inference", "interactive")}
    assert {one["pods"] for one in given.values()} == of_kind("priorities", "PriorityClass").keys()
    assert {one["workload"] for one in given.values()} == of_kind("kueue", "WorkloadPriorityClass").keys()
    assert all(one["pods"] == one["workload"] == f"gpu-{sort}" for sort, one in given.items())


def test_the_policy_for_tenants_refuses_nobody_for_what_teams_differ_in() -> None:
    rules = of_kind("policy", "GPUPolicy")["tenants"]["spec"]["rules"]
    assert not rules["priority"]["required"]
    assert not any(one["required"] for one in rules["attribution"]["keys"])
    assert rules["isolation"]["mode"] == "Mutate"
    assert all(one.get("whenUnsatisfiable", "ScheduleAnyway") == "ScheduleAnyway" for one in rules["spread"]["over"])


def test_the_monitor_of_gpugate_selects_its_services_and_their_ports() -> None:
    monitor = of_kind("monitoring", "ServiceMonitor")["gpugate"]
    services = [*read(BASE / "service.yaml"), *read(BASE / "controller-service.yaml")]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert all(wanted <= one["metadata"]["labels"].items() for one in services)
    # The port of reviews has no metrics.
    assert {port["name"] for one in services for port in one["spec"]["ports"]} - {"https"} == {
        one["port"] for one in monitor["spec"]["endpoints"]
    }
    assert not any("scheme" in one or "tlsConfig" in one for one in monitor["spec"]["endpoints"]), "these ports are HTTP"


def test_alerts_on_gpugate_name_metrics_that_it_has() -> None:
    (rules,) = [one for one in objects("monitoring/gpugate") if one["kind"] == "PrometheusRule"]
    used = {
        name for group in rules["spec"]["groups"] for rule in group["rules"] for name in re.findall(r"gpugate_\w+", rule["expr"])
    }
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "webhook").rglob("*.py"))
    assert used
    for name in used:
        assert f'"{re.sub("_(total|bucket)$", "", name)}"' in code, name
