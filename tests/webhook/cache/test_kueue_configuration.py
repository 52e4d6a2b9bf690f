"""Kueue's Configuration in its ConfigMap: read where Kueue is, and harmless whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.kube.fields import MalformedError
from gpugate.webhook.cache.kinds import configuration_in, fact_kinds, reducer_for

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
(KIND,) = [kind for kind in fact_kinds() if kind.plural == "configmaps"]


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "kueue-manager-config", "namespace": "kueue-system", "uid": "1"}
    return {"metadata": metadata, "data": {"controller_manager_config.yaml": text}}


def test_it_is_read_in_kueues_own_namespace_where_users_cannot_write() -> None:
    assert KIND.field_selector == "metadata.name=kueue-manager-config,metadata.namespace=kueue-system"
    (elsewhere,) = [kind for kind in fact_kinds("openshift-kueue-operator") if kind.plural == "configmaps"]
    assert str(elsewhere.field_selector).endswith("metadata.namespace=openshift-kueue-operator")
    # It is read alike, wherever it is.
    found = reducer_for(elsewhere)(config_map(HEAD + "integrations: {frameworks: [pod]}\n"))
    assert found.record.frameworks == {"pod"}


@pytest.mark.parametrize(
    "text",
    [
        "a: [\n",
        "a: 2001-99-99\n",
        "a: !!int x\n",
        "a: !!python/object/apply:os.system [id]\n",
        "a: 1\na: 2\n",
        "---\n" + HEAD,
        "resources: 5\n",
        "a: " + "[" * 3000 + "]" * 3000,
        "# " + "x" * 70_000,
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_configuration_is_left_out_with_a_reason(text: str) -> None:
    found = reducer_for(KIND)(config_map(HEAD + text))
    assert found.record is None
    assert found.error


def test_a_config_map_that_is_too_long_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpugate.webhook.cache.kinds.YAML", None)
    with pytest.raises(MalformedError, match="longer than 65536 characters"):
        configuration_in(config_map(HEAD + "#" * 65536))
