"""Whether somebody states a field, or the apiserver filled it in before anybody could look."""

from __future__ import annotations

from typing import Final

import orjson

from gpugate.policies.fields import Object, Path, lookup, mapping, mappings

#: What ``kubectl apply`` and Argo CD's client-side apply were given, word for word.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def is_stated(root: Object, path: Path) -> bool | None:
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
