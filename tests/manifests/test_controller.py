"""The controller's part of the base: what it may do, and that all of it belongs together."""

from __future__ import annotations

from typing import Any

import typer

from gpugate.policies.workloads.kinds import KINDS
from gpugate.webhook.audit.output.policy_reports import OPEN_REPORT, POLICY_REPORT
from gpugate.webhook.cli.main import app
from gpugate.webhook.controller.leader_election import NAME
from tests.manifests.installation import documents, the

SELECTED = {"app.kubernetes.io/name": "gpugate", "app.kubernetes.io/component": "controller"}
READ = {"get", "list", "watch"}


def granted(rules: list[Any]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_the_controller_may_read_every_kind_of_workload_and_change_none() -> None:
    may = granted([*the("ClusterRole", "controller")["rules"], *the("ClusterRole")["rules"]])
    for kind in KINDS:
        assert may[(kind.group, kind.resource)] == READ, kind.kind


def test_the_controller_may_read_what_the_webhook_reads() -> None:
    (binding,) = [one for one in documents() if one["metadata"]["name"] == "gpugate-controller-facts"]
    assert binding["roleRef"]["name"] == the("ClusterRole")["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == [the("ServiceAccount", "controller")["metadata"]["name"]]


def test_the_controller_may_write_reports_and_its_own_lease() -> None:
    may = granted(the("ClusterRole", "controller")["rules"])
    for kind in (POLICY_REPORT, OPEN_REPORT):
        group = kind.api_version.partition("/")[0]
        assert may[(group, kind.plural)] == READ | {"create", "patch", "delete"}
    create, keep = the("Role", "controller")["rules"]
    assert granted([create]) == {("coordination.k8s.io", "leases"): {"create"}}
    assert granted([keep]) == {("coordination.k8s.io", "leases"): {"get", "update"}}
    assert keep["resourceNames"] == [NAME]


def test_nobody_may_read_secrets_or_act_for_others() -> None:
    for document in documents():
        for rule in document.get("rules", []) if document["kind"] in {"ClusterRole", "Role"} else ():
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            assert {"secrets", "serviceaccounts/token"}.isdisjoint(rule["resources"])
            assert {"impersonate", "escalate", "bind"}.isdisjoint(rule["verbs"])


def test_service_and_network_policy_select_the_deployment_and_its_port() -> None:
    deployment = the("Deployment", "controller")
    template = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"] == SELECTED
    assert the("Service", "controller")["spec"]["selector"] == SELECTED
    assert the("NetworkPolicy", "controller")["spec"]["podSelector"]["matchLabels"] == SELECTED
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert the("Service", "controller")["spec"]["ports"][0]["targetPort"] == port["name"]
    (ingress,) = the("NetworkPolicy", "controller")["spec"]["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": port["containerPort"]}]
    assert ingress["from"], "the page asks nobody who they are"


def test_the_arguments_are_what_the_command_takes() -> None:
    (container,) = the("Deployment", "controller")["spec"]["template"]["spec"]["containers"]
    command, *options = container["args"]
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    known = {name for parameter in found.params for name in parameter.opts}
    assert {one.partition("=")[0] for one in options} <= known


def test_both_programs_are_of_one_image_and_as_closed() -> None:
    webhook, controller = (the("Deployment", part)["spec"]["template"]["spec"] for part in ("webhook", "controller"))
    (first,), (second,) = webhook["containers"], controller["containers"]
    assert first["image"] == second["image"]
    assert first["securityContext"] == second["securityContext"]
    assert webhook["securityContext"] == controller["securityContext"]
