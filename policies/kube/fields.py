"""Read fields of untrusted objects, and format their paths.

A path is a tuple of keys and list indices from the root of an object. ``None`` counts as absent, as in the API server: charts
render ``annotations:`` without a value. The readers raise a :class:`MalformedError` for a value of another type; most often it is
an unquoted number or boolean in YAML.
"""

from functools import lru_cache
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
Object: TypeAlias = dict[str, Any]

_PLAIN_KEY: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_$")
#: Names of types in messages.
_TYPE_NAMES: Final = {
    dict: "a map",
    list: "a list",
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
}


class MalformedError(ValueError):
    """A field whose type or value the Kubernetes API would reject; ``problem`` says what is wrong and what it should be."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{dotted(path)}: {problem}")
        self.path = path
        self.problem = problem


def dotted(path: Path) -> str:
    """Return ``path`` as Kubernetes writes field paths: ``spec.containers[0].resources.limits[nvidia.com/gpu]``."""
    text = ""
    for part in path:
        if isinstance(part, str) and part and _PLAIN_KEY.issuperset(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


@lru_cache(maxsize=8192)
def pointer(path: Path) -> str:
    """Return ``path`` as a JSON Pointer (RFC 6901)."""
    parts = []
    for part in path:
        text = str(part)
        if "~" in text or "/" in text:
            text = text.replace("~", "~0").replace("/", "~1")
        parts.append(text)
    return "/" + "/".join(parts) if parts else ""


def from_pointer(text: str) -> Path:
    """Return the path of a JSON Pointer; list indices become integers (``-``, the end of a list, stays a string)."""
    if not text:
        return ()
    parts = (part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))
    return tuple(part if (index := whole_number(part, 9)) is None else index for part in parts)


def whole_number(written: object, digits: int = 7) -> int | None:
    """Return the number in a label or annotation; None if it is not written in at most ``digits`` decimal digits."""
    if type(written) is str and written.isascii() and written.isdigit() and len(written) <= digits:
        return int(written)
    return None


def type_name(value: object) -> str:
    """Return the YAML name of the type of ``value``."""
    return _TYPE_NAMES.get(type(value), "nothing" if value is None else type(value).__name__)


def wrong_type(path: Path, expected: str, value: object) -> MalformedError:
    """Return the error for a ``value`` at ``path`` that is not of the ``expected`` type."""
    return MalformedError(path, f"must be {expected}, is {type_name(value)}")


def mapping(parent: Object, key: str, path: Path) -> Object:
    """Return the map at ``key`` of ``parent`` (which lies at ``path``); an empty one if absent."""
    value = parent.get(key)
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise wrong_type((*path, key), "a map", value)


def metadata_map(root: Object, key: str, path: Path = ()) -> Object:
    """Return the map at ``key`` (``labels``, ``annotations``) of the metadata of ``root``, an object at ``path``."""
    metadata = root.get("metadata")
    value = metadata.get(key) if type(metadata) is dict else None
    return value if type(value) is dict else mapping(mapping(root, "metadata", path), key, (*path, "metadata"))


def sequence(parent: Object, key: str, path: Path) -> list[Any]:
    """Return the list at ``key`` of ``parent`` (which lies at ``path``); an empty one if absent."""
    value = parent.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong_type((*path, key), "a list", value)
    return value


def mappings(parent: Object, key: str, path: Path) -> list[Object]:
    """Return the list of maps at ``key`` of ``parent``; an empty one if absent."""
    elements = parent.get(key)
    if elements is None:
        return []
    if type(elements) is not list:
        raise wrong_type((*path, key), "a list", elements)
    for element in elements:
        if type(element) is not dict:
            raise wrong_type((*path, key, elements.index(element)), "a map", element)
    return elements


def string(parent: Object, key: str, path: Path) -> str | None:
    """Return the string at ``key`` of ``parent``; None if it is absent."""
    value = parent.get(key)
    if value is None or type(value) is str:
        return value
    raise MalformedError((*path, key), f'must be a string, is {type_name(value)}: put it in quotes, "{str(value).lower():.40}"')


def integer(parent: Object, key: str, path: Path) -> int | None:
    """Return the whole number at ``key`` of ``parent``; None if it is absent."""
    value = parent.get(key)
    if value is None or type(value) is int:
        return value
    raise wrong_type((*path, key), "a whole number", value)


def lookup(root: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at ``path`` below ``root``; None if it or one of its parents is absent."""
    value = root
    for part in path:
        if type(value) is dict:
            value = value.get(part)
        elif type(value) is list and type(part) is int and part < len(value):
            value = value[part]
        else:
            return None
    return value


def integer_at(root: Object, path: Path) -> int | None:
    """Return the whole number at ``path`` below ``root``; None if it or one of its parents is absent."""
    parent = lookup(root, path[:-1])
    return integer(parent, str(path[-1]), path[:-1]) if type(parent) is dict else None


def named_path(root: Object, path: Path) -> Path:
    """Return ``path`` with the names of list elements instead of indices, which change if an element is inserted before."""
    value: Any = root
    named: list[str | int] = []
    for part in path:
        value = lookup(value, (part,))
        name = value.get("name") if type(part) is int and type(value) is dict else None
        named.append(name if type(name) is str else part)
    return tuple(named)


def clone(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a deep copy of a JSON value (faster than ``copy.deepcopy``: JSON has no cycles)."""
    if type(value) is dict:
        return {key: clone(item) if type(item) is dict or type(item) is list else item for key, item in value.items()}
    if type(value) is list:
        return [clone(item) if type(item) is dict or type(item) is list else item for item in value]
    return value
