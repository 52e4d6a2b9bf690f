"""Argo CD, Flux's kustomize-controller and what they need, built from Go modules into the same cache as the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e import renderers
from tests.e2e.controlplane.programs import GoBuild, build_all

if TYPE_CHECKING:
    from tests.e2e.controlplane.programs import Programs

ARGO_MODULE = "github.com/argoproj/argo-cd/v3"
FLUX_MODULE = "github.com/fluxcd/kustomize-controller"
_MODULES = Path(__file__).resolve().parent / "go"

BUILDS = (
    GoBuild("redis", {"redis": "."}, {}, modules=_MODULES),
    *renderers.BUILDS,
    GoBuild("flux", {"kustomize-controller": FLUX_MODULE}, {}, (FLUX_MODULE,), modules=_MODULES),
    GoBuild("argocd", {"argocd": f"{ARGO_MODULE}/cmd"}, {}, (ARGO_MODULE,), modules=_MODULES),
)


def find_tools() -> Programs:
    """The programs of `BUILDS`, built first where the cache does not hold them."""
    return build_all(BUILDS)
