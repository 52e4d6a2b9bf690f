"""Whether somebody states a field, or the apiserver filled it in before anybody could look."""

from __future__ import annotations

from typing import Any, Final

import orjson

from gpugate.policies.kube.fields import Object, Path, lookup, mapping, mappings

#: What ``kubectl apply`` and Argo CD's client-side apply were given, word for word.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

#: Fields of which rules read whether a user set them (a test holds them equal to the ``reads_user_set`` of all rules):
#: whoever keeps an object keeps no more of these records.
ASKED: Final = frozenset({"backoffLimit", "podReplacementPolicy", "replicas"})


def is_user_set(root: Object, path: Path) -> bool | None:
    """Whether whoever wrote ``root`` states ``path``, a field that the API fills in; None where nothing tells.

    What was applied tells: by the annotation, or by the managed fields of a server-side apply. Those of any other request name
    defaults, too. An object without managed fields has not been through the API, and is as it was written.
    """
    if lookup(root, path) is None:
        return False
    metadata = mapping(root, "metadata", ())
    applied = mapping(metadata, "annotations", ("metadata",)).get(LAST_APPLIED)
    if type(applied) is str:
        return _is_in(applied, path)
    managed = mappings(metadata, "managedFields", ("metadata",))
    if not managed:
        return True
    place = ("fieldsV1", *(f"f:{part}" for part in path))
    if any(one.get("operation") == "Apply" and lookup(one, place) is not None for one in managed):
        return True
    return None if any(one.get("operation") != "Apply" for one in managed) else False


def _is_in(applied: str, path: Path) -> bool | None:
    try:
        return lookup(orjson.loads(applied), path) is not None
    except orjson.JSONDecodeError:
        return None


def applied_in_short(applied: str) -> str:
    """What the annotation tells of the fields that rules ask about, in the same form; what cannot be read stays so."""
    try:
        return orjson.dumps(_pruned(orjson.loads(applied), ASKED) or {}).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return ""


def managed_in_short(fields: Any) -> list[Object]:  # noqa: ANN401 - any JSON value
    """What the managed fields tell of them, each way of telling once, in order."""
    names = frozenset(f"f:{name}" for name in ASKED)
    found: list[Object] = []
    for entry in fields if isinstance(fields, list) else ():
        if isinstance(entry, dict):
            kept = {key: entry[key] for key in ("manager", "operation") if isinstance(entry.get(key), str)}
            told = _pruned(entry.get("fieldsV1"), names)
            short = {**kept, "fieldsV1": told} if told else kept
            if short not in found:
                found.append(short)
    return found


def _pruned(value: Any, names: frozenset[str]) -> Object:  # noqa: ANN401 - any JSON value
    """The maps of ``value`` that lead to fields with one of ``names``; of those fields, only that they are there."""
    found: Object = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in names and item is not None:
            found[key] = {}
        elif below := _pruned(item, names):
            found[key] = below
    return found
