"""Records of edits that gpugate did not write (`gpugate.io/mutations`), as long as they may be, and objects to put them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from gpugate.policies.workloads.recorded_edits import ANNOTATION, LARGEST
from tests.shared.builders import container, templated

_ITEMS = "/spec/template/spec/volumes/0/configMap/items"


def _full(make: Callable[[int], list[Any]]) -> str:
    """A record as long as one may be."""
    operations: list[list[Any]] = []
    size = 2
    while True:
        operation = make(len(operations))
        size += len(orjson.dumps(operation)) + 1
        if size > LARGEST:
            return orjson.dumps(operations).decode()
        operations.append(operation)


RECORDS: dict[str, str] = {
    "a value over a list": _full(lambda at: ["add", _ITEMS, at]),
    "elements that are not there": _full(lambda at: ["add", f"{_ITEMS}/-", {"key": "k1", "x": at}]),
    "numbers that are not there": _full(lambda at: ["add", f"{_ITEMS}/-", at]),
    "one list of elements that are not there": orjson.dumps([["add", _ITEMS, [{"x": at} for at in range(5_000)]]]).decode(),
    "a list in the place of nothing": _full(lambda at: ["replace", _ITEMS, at, None]),
    "one label": _full(lambda at: ["add", "/metadata/labels/app", str(at)]),
    "many labels": _full(lambda at: ["add", f"/metadata/labels/a{at}", "x"]),
    "a deep path": orjson.dumps([["add", "/spec/template/spec/volumes" + "/a" * 30_000, 1]]).decode(),
}


def deployment(items: int, record: str) -> dict[str, Any]:
    root = templated("Deployment", container(memory="8Gi"))
    root["metadata"]["annotations"] = {ANNOTATION: record}
    entries = [{"key": f"k{at}", "path": f"p{at}"} for at in range(items)]
    root["spec"]["template"]["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "settings", "items": entries}}]
    return root
