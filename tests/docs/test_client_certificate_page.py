"""The page about client certificates: its commands make what the server takes, and its files fit each other and the base."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import click
import jsonpatch
import orjson
import pytest
import typer
from ruamel.yaml import YAML

from gpugate.webhook.cli.main import app
from tests.manifests.installation import the
from tests.shared.paths import ROOT
from tests.shared.reviews import POLICY, admission, pod
from tests.shared.running import serving

PAGE = (ROOT / "docs" / "operate" / "client-certificate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [textwrap.dedent(found) for found in re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)]


def documents() -> dict[str, Any]:
    return {found["kind"]: found for found in (YAML(typ="safe").load(text) for text in blocks("yaml"))}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_commands_make_a_certificate_that_the_server_takes(tmp_path: Path) -> None:
    script = next(text for text in blocks("sh") if "openssl" in text)
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, capture_output=True)
    (name,) = re.findall(r"--client-name=(\S+)", PAGE)
    options = ("--client-ca", str(tmp_path / "callers-ca.crt"), "--client-name", name, "--policy", str(POLICY))
    with serving(tmp_path / "tls", *options) as server:
        context = server.context()
        body = orjson.dumps(admission(pod()))
        assert server.ask("POST", "/mutate", body, context=context).status == 401
        context.load_cert_chain(tmp_path / "caller.crt", tmp_path / "caller.key")
        assert server.ask("POST", "/mutate", body, context=context).status == 200


def test_the_kubeconfig_is_for_the_service_and_read_by_both_plugins() -> None:
    found = documents()
    service = the("Service")["metadata"]
    (user,) = found["Config"]["users"]
    assert user["name"] == f"{service['name']}.{service['namespace']}.svc"
    plugins = found["AdmissionConfiguration"]["plugins"]
    assert [plugin["name"] for plugin in plugins] == ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]
    folders = {str(Path(plugin["configuration"]["kubeConfigFile"]).parent) for plugin in plugins}
    folders |= {str(Path(path).parent) for path in user["user"].values()}
    folders |= {str(Path(path).parent) for path in re.findall(r"--admission-control-config-file=([^`\s]+)", PAGE)}
    assert folders == {"/etc/kubernetes/webhooks"}


def test_the_patch_gives_the_base_the_options_and_the_file_that_they_name() -> None:
    (patch,) = documents()["Kustomization"]["patches"]
    deployment = the("Deployment")
    assert patch["target"] == {"kind": "Deployment", "name": deployment["metadata"]["name"]}
    patched = jsonpatch.apply_patch(deployment, YAML(typ="safe").load(patch["patch"]))["spec"]["template"]["spec"]
    (container,) = patched["containers"]
    command, *options = container["args"]
    serve = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    given, rest, _ = serve.make_parser(click.Context(serve)).parse_args(options)
    assert rest == []
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in patched["volumes"]}
    folder, _, file = given["client_ca"].rpartition("/")
    config_map = volumes[mounts[folder]]["configMap"]["name"]
    assert f"create configmap {config_map} --from-file={file}=" in PAGE
