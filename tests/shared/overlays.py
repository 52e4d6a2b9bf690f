"""Overlays: how a golden case states what differs from an object that it shares with other cases."""

from __future__ import annotations

from typing import Any

from gpugate.policies.kube.fields import clone


def overlaid(base: Any, overlay: Any, path: str = "") -> Any:
    """Return ``base`` with ``overlay`` merged onto it; neither is changed.

    - A map is merged onto a map key by key. ``null`` removes a key, which must be there. A key that ``base`` does not have takes
      the value of the overlay as it is.
    - A list of maps that each have a ``name`` of their own is merged onto such a list by name: an item of the same name is merged
      onto, an item of another name is appended.
    - Anything else replaces what was there.

    Raises:
        ValueError: ``overlay`` removes a key that ``base`` does not have.
    """
    if isinstance(base, dict) and isinstance(overlay, dict):
        return _merged_maps(base, overlay, path)
    if _named(base) and _named(overlay):
        return _merged_lists(base, overlay, path)
    return clone(overlay)


def _merged_maps(base: dict[str, Any], overlay: dict[str, Any], path: str) -> dict[str, Any]:
    merged = clone(base)
    for key, value in overlay.items():
        if value is None:
            if key not in base:
                raise ValueError(f"the overlay removes {path}{key}, which is not there")
            del merged[key]
        else:
            merged[key] = overlaid(base[key], value, f"{path}{key}.") if key in base else clone(value)
    return dict(merged)


def _merged_lists(base: list[dict[str, Any]], overlay: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    changes = {item["name"]: item for item in overlay}
    merged = [overlaid(item, changes.pop(item["name"], {}), f"{path[:-1]}[{item['name']}].") for item in base]
    return [*merged, *clone(list(changes.values()))]


def _named(value: Any) -> bool:
    """Return whether ``value`` is a list of maps that each have a ``name`` of their own."""
    if not isinstance(value, list) or not value:
        return False
    names = [item.get("name") if isinstance(item, dict) else None for item in value]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
