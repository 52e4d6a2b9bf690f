"""kustomize and Helm, built from their Go modules into the cache of the control plane's programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.controlplane.programs import GoBuild, build_all

if TYPE_CHECKING:
    from pathlib import Path

BUILDS = (
    GoBuild("kustomize", {"kustomize": "sigs.k8s.io/kustomize/kustomize/v5"}, {}),
    GoBuild("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, {}),
)


def find_renderers() -> dict[str, Path]:
    """The executables by name, built first where the cache does not hold them."""
    return dict(build_all(BUILDS).paths)
