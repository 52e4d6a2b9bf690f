"""The kustomize base: complete, read alike by everyone, and as closed as it can be."""

from __future__ import annotations

import click
import typer

from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES
from gpugate.webhook.cli.main import app
from tests.manifests.installation import BASE, documents, kustomization, read, the

SELECTED = {"app.kubernetes.io/name": "gpugate", "app.kubernetes.io/component": "webhook"}
NAMESPACE = "gpugate-system"


def test_the_kustomization_lists_every_file() -> None:
    there = {str(path.relative_to(BASE)) for path in BASE.rglob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization()["resources"]) == there
    assert len(kustomization()["resources"]) == len(there)


def test_both_versions_of_yaml_read_every_file_alike() -> None:
    for path in BASE.rglob("*.yaml"):
        assert read(path, "1.1") == read(path, "1.2"), path


def test_every_namespaced_object_is_in_the_namespace() -> None:
    names = {document["metadata"].get("namespace") for document in documents()}
    assert names == {None, NAMESPACE}
    assert the("Namespace")["metadata"]["name"] == NAMESPACE


def test_the_namespace_takes_restricted_pods_only() -> None:
    labels = the("Namespace")["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}


def test_rbac_reads_facts_and_writes_events_and_nothing_else() -> None:
    granted = {
        (group, resource): tuple(rule["verbs"])
        for rule in the("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted.pop(("events.k8s.io", "events")) == ("create", "patch")
    assert set(granted) == {(kind.group, kind.plural) for kind in (*FACT_KINDS, POLICIES)}
    assert set(granted.values()) == {("get", "list", "watch")}
    assert the("ClusterRoleBinding")["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    assert the("ClusterRoleBinding")["subjects"][0]["name"] == the("ServiceAccount")["metadata"]["name"]


def test_the_service_the_budget_and_the_policy_select_the_deployment() -> None:
    deployment = the("Deployment")
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"] == SELECTED
    assert the("Service")["spec"]["selector"] == SELECTED
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == SELECTED
    assert the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= SELECTED.items()
    spread = template["spec"]["topologySpreadConstraints"]
    assert all(one["labelSelector"]["matchLabels"] == SELECTED for one in spread)


def test_the_pods_are_hardened() -> None:
    pod = the("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert "lifecycle" not in container


def test_one_replica_may_always_go() -> None:
    assert the("Deployment")["spec"]["replicas"] > the("PodDisruptionBudget")["spec"]["minAvailable"]


def test_probes_and_ports_meet() -> None:
    (container,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    port, metrics = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in container["args"]
    assert f"--metrics-listen=0.0.0.0:{metrics['containerPort']}" in container["args"]
    assert [served["targetPort"] for served in the("Service")["spec"]["ports"]] == [port["name"], metrics["name"]]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert the("NetworkPolicy")["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": port["containerPort"]}]},
        {"from": [monitoring], "ports": [{"protocol": "TCP", "port": metrics["containerPort"]}]},
    ]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["scheme"] for probe in probes.values()} == {"HTTPS"}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }


def test_the_command_line_knows_the_arguments() -> None:
    pod = the("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *options = container["args"]
    group = typer.main.get_command(app)
    serve = group.commands[command]  # type: ignore[attr-defined]
    context = click.Context(serve) if isinstance(serve, click.Command) else serve.context_class(serve)
    given, rest, _ = serve.make_parser(context).parse_args(options)
    assert rest == []
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert given["tls_dir"] in mounts


def test_serve_ends_before_it_is_killed() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    defaults = {one.name: one.default for one in serve.params}
    grace = the("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert defaults["drain_delay"] + defaults["drain_timeout"] < grace


def test_of_the_config_maps_only_kueues_own_configuration_is_read() -> None:
    (rule,) = [rule for rule in the("ClusterRole")["rules"] if "configmaps" in rule["resources"]]
    assert rule["resources"] == ["configmaps"]
    (kind,) = [kind for kind in FACT_KINDS if kind.plural == "configmaps"]
    # RBAC sees the name in the selector; only Kueue's namespace is asked for, for anyone may use the name elsewhere.
    (name,) = rule["resourceNames"]
    assert kind.field_selector == f"metadata.name={name},metadata.namespace=kueue-system"
