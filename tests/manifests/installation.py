"""What is in `manifests/base`, parsed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.shared.paths import ROOT

BASE = ROOT / "manifests" / "base"


def read(path: Path, version: str = "1.2") -> list[Any]:
    """The documents of a YAML file, read by the rules of one version of YAML."""
    reader = YAML(typ="safe", pure=True)
    reader.version = version
    return [document for document in reader.load_all(path.read_text(encoding="utf-8")) if document is not None]


@cache
def kustomization() -> Any:
    return read(BASE / "kustomization.yaml")[0]


@cache
def documents() -> tuple[Any, ...]:
    """Every object that the base lists."""
    return tuple(document for name in kustomization()["resources"] for document in read(BASE / name))


def the(kind: str, part: str = "webhook") -> Any:
    """The one object of this kind that belongs to the webhook, or to the controller."""
    (found,) = [one for one in documents() if one["kind"] == kind and _part_of(one["metadata"]["name"]) == part]
    return found


def _part_of(name: str) -> str:
    if name == "gpugate-controller-facts":  # what the controller shares with the webhook
        return "both"
    return "controller" if name.startswith("gpugate-controller") else "webhook"
