"""Read untrusted objects field by field, and name paths in them.

A path is a tuple of keys and list indices from the root of an object. ``None`` counts as absent, as it does for
the API server: charts render ``annotations:`` with nothing behind it.
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
    """A field whose type or value the Kubernetes API would not accept.

    Attributes:
        path: where the field is.
        problem: what is wrong and what the field should hold.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{dotted(path)}: {problem}")
        self.path = path
        self.problem = problem


def _plain(key: str) -> bool:
    return bool(key) and _PLAIN_KEY.issuperset(key)


def dotted(path: Path) -> str:
    """Return ``path`` as Kubernetes writes field paths: ``spec.containers[0].resources.limits[nvidia.com/gpu]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _plain(part):
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
    """Return the number that a label or annotation states in decimal digits; None if it states none, or a longer one."""
    if type(written) is str and written.isascii() and written.isdigit() and len(written) <= digits:
        return int(written)
    return None


def type_name(value: object) -> str:
    """Return the YAML name of the type of ``value``."""
    return _TYPE_NAMES.get(type(value), "nothing" if value is None else type(value).__name__)


def wrong_type(path: Path, wanted: str, value: object) -> MalformedError:
    """Return the error for a ``value`` at ``path`` that is not of the type ``wanted``."""
    return MalformedError(path, f"must be {wanted}, is {type_name(value)}")


def mapping(parent: Object, key: str, path: Path) -> Object:
    """Return the map at ``key`` of ``parent`` (which lies at ``path``); an empty one if absent.

    Raises:
        MalformedError: the field is no map.
    """
    value = parent.get(key)
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise wrong_type((*path, key), "a map", value)


def sequence(parent: Object, key: str, path: Path) -> list[Any]:
    """Return the list at ``key`` of ``parent`` (which lies at ``path``); an empty one if absent.

    Raises:
        MalformedError: the field is no list.
    """
    value = parent.get(key)
    if value is None:
        return []
    if type(value) is not list:
        raise wrong_type((*path, key), "a list", value)
    return value


def mappings(parent: Object, key: str, path: Path) -> list[Object]:
    """Return the list of maps at ``key`` of ``parent``; an empty one if absent.

    Raises:
        MalformedError: the field is no list, or an element of it is no map.
    """
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
    """Return the string at ``key`` of ``parent``; None if it is absent.

    Raises:
        MalformedError: the field is no string (an unquoted number or boolean in YAML, most often).
    """
    value = parent.get(key)
    if value is None or type(value) is str:
        return value
    raise MalformedError((*path, key), f'must be a string, is {type_name(value)}: put it in quotes, "{str(value).lower():.40}"')


def integer(parent: Object, key: str, path: Path) -> int | None:
    """Return the whole number at ``key`` of ``parent``; None if it is absent.

    Raises:
        MalformedError: the field is no whole number.
    """
    value = parent.get(key)
    if value is None or type(value) is int:
        return value
    raise wrong_type((*path, key), "a whole number", value)


def lookup(root: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value at ``path`` below ``root``; None if it, or anything on the way to it, is absent."""
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
    """Return the whole number at ``path`` below ``root``; None where it, or anything on the way to it, is absent.

    Raises:
        MalformedError: the field is no whole number.
    """
    parent = lookup(root, path[:-1])
    return integer(parent, str(path[-1]), path[:-1]) if type(parent) is dict else None


def named_path(root: Object, path: Path) -> Path:
    """Return ``path`` with the names of list elements in place of their indices.

    A container or volume keeps its path if another is inserted before it.
    """
    holder: Any = root
    named: list[str | int] = []
    for part in path:
        holder = lookup(holder, (part,))
        name = holder.get("name") if type(part) is int and type(holder) is dict else None
        named.append(name if type(name) is str else part)
    return tuple(named)


def clone(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a copy of a JSON value that shares no map or list with it (faster than ``copy.deepcopy``: JSON has no cycles)."""
    if type(value) is dict:
        return {key: clone(item) if type(item) is dict or type(item) is list else item for key, item in value.items()}
    if type(value) is list:
        return [clone(item) if type(item) is dict or type(item) is list else item for item in value]
    return value
