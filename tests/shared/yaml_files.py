"""Read the YAML files of the tests, quickly."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.CSafeLoader):
    """YAML 1.2 as JSON has it: only ``true``, ``false`` and ``null`` are words that are not text. A key twice is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the parent has it

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep=deep)
        if len(made) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return dict(made)


for _tag, _words, _first in (
    ("bool", "true|false", "tf"),
    ("null", "null|~|", ["n", "~", ""]),
    ("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+)", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_words})\Z"), list(_first))


def loaded(text: str) -> Any:
    """Return the one document of ``text``."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - the loader is a safe one


@cache
def read(path: Path) -> Any:
    """Return what a file holds; it is not to be edited."""
    return loaded(path.read_text(encoding="utf-8"))
