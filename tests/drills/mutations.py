"""Reviews of every kind, mutated in structure, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import orjson

from benchmarks import reviews
from benchmarks.bodies import kinds, review

Place = tuple[str | int, ...]

#: JSON that no library writes; each takes the place of a mark in the text.
RAW: Final = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1e308",
        "5e-324",
        "-0",
        "-0.0",
        "1E400",
        "0.1e-400",
        "18446744073709551616",
    ),
    *("9223372036854775807", "-9223372036854775809", "9" * 400, "0." + "9" * 400, '"' + "9" * 400 + '"', '"1e400"', '"1e-400"'),
    *('"9223372036854775808Ei"', '"-1Gi"', '"0.0000000001n"', '"NaN"', '"+1"', '"\\u0661"', '" 1"', '"1 "', '"1e9999999999"'),
    *(
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\\u0000"',
        '"\\ufeff"',
        '"\\u2028"',
        '"' + "a" * 20_000 + '"',
        "01",
        "1.",
        ".5",
        "tru",
        "'a'",
    ),
    *("[" * 1500 + "]" * 1500, '{"a":' * 1500 + "1" + "}" * 1500, "[" * 1500, "[1,]", "{,}", "/**/1"),
)
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 1.5, 2**53, 2**63 - 1, -(2**63), 1e300, "", "x", "0", "1", "-1", "8Gi", "true", "null"),
    *([], {}, [[]], [{}], {"": {}}, [None], {"name": None}, {"name": []}, ["a", 1, None], {"a": [{"b": [{}]}]}, "\n", "\x00"),
    *("é" * 300, "../../etc/passwd", "${HOME}", "%s%n", "gpugate.io/mutations", "nvidia.com/gpu", "-", "~0~1", "/"),
)
_KEYS: Final = ("", "Spec", "name ", "é", "\x00", "__proto__", "nvidia.com/gpu", "a/b/c", "containers", "-", "0", "~", "x" * 300)
_MARK: Final = "@raw%d@"


class Body(NamedTuple):
    """One mutated review.

    Attributes:
        endpoint: ``mutate`` or ``validate``.
        what: names of the mutations.
    """

    endpoint: str
    body: bytes
    what: str


class _Seed(NamedTuple):
    text: bytes
    places: list[Place]


def seeds() -> list[_Seed]:
    """Return the recorded review, and a CREATE and an UPDATE of every kind."""
    made = [orjson.loads(reviews.recorded())]
    for root in kinds().values():
        changed = {**root, "metadata": {**root["metadata"], "labels": {"app": "b"}}}
        made += [review(root), review(changed, root)]
    texts = [orjson.dumps(one) for one in made]
    return [_Seed(text, list(_places(orjson.loads(text)))) for text in texts]


def _places(value: Any, path: Place = ()) -> Iterator[Place]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


class Mutator:
    """Makes mutated reviews."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same bodies each time
        self._seeds = seeds()
        self._marks: dict[str, str] = {}
        self._ways: list[Callable[[Any, Any, Place], str]] = [
            self._replace,
            self._raw,
            self._remove,
            self._repeat,
            self._repeat_key,
            self._nest,
            self._transplant,
            self._rename,
        ]

    def bodies(self, number: int) -> Iterator[Body]:
        for _ in range(number):
            yield self._body()

    def _body(self) -> Body:
        seed = self._random.choice(self._seeds)
        root = orjson.loads(seed.text)
        self._marks = {}
        names = []
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            place = self._random.choice(seed.places)
            holder = _at(root, place[:-1])
            if _has(holder, place[-1]):
                names.append(f"{self._random.choice(self._ways)(root, holder, place)} {'.'.join(map(str, place))}")
        text = orjson.dumps(root)
        for mark, raw in self._marks.items():
            text = text.replace(f'"{mark}"'.encode(), raw.encode("utf-8", "surrogatepass"))
        if self._random.random() < 0.03:
            names.append("text")
            text = self._text(text)
        return Body(self._random.choice(("mutate", "validate")), text, ", ".join(names))

    def _text(self, text: bytes) -> bytes:
        """Return ``text`` with a byte order mark, an end that is missing, or bytes that are no UTF-8."""
        at = self._random.randrange(len(text))
        return self._random.choice(
            (
                b"\xef\xbb\xbf" + text,
                text[:at],
                text + text,
                text[:at] + b"\xff" + text[at:],
                text[:at] + b"\x00" + text[at + 1 :],
                text.decode().encode("utf-16"),
                b"\n" * 1000 + text,
                text[:at] + bytes([self._random.randrange(256)]) + text[at + 1 :],
            )
        )

    def _mark(self, raw: str) -> str:
        mark = _MARK % len(self._marks)
        self._marks[mark] = raw
        return mark

    def _replace(self, _root: Any, holder: Any, place: Place) -> str:
        holder[place[-1]] = orjson.loads(orjson.dumps(self._random.choice(_VALUES)))
        return "replace"

    def _raw(self, _root: Any, holder: Any, place: Place) -> str:
        holder[place[-1]] = self._mark(self._random.choice(RAW))
        return "raw"

    def _remove(self, _root: Any, holder: Any, place: Place) -> str:
        del holder[place[-1]]
        return "remove"

    def _repeat(self, _root: Any, holder: Any, place: Place) -> str:
        if isinstance(holder, list):
            holder.extend([holder[int(place[-1])]] * self._random.choice((1, 2, 30)))
        return "repeat"

    def _repeat_key(self, _root: Any, holder: Any, place: Place) -> str:
        if isinstance(holder, dict):
            # The last of equal keys counts; the first is the value that was there.
            key = orjson.dumps(place[-1]).decode()
            holder[self._mark(f'{key}:{orjson.dumps(self._random.choice(_VALUES)).decode()},"again"')] = 1
        return "repeat the key"

    def _nest(self, _root: Any, holder: Any, place: Place) -> str:
        value = holder[place[-1]]
        for _ in range(self._random.choice((1, 1, 2, 40))):
            value = [value] if self._random.random() < 0.5 else {"a": value}
        holder[place[-1]] = value
        return "nest"

    def _transplant(self, _root: Any, holder: Any, place: Place) -> str:
        other = self._random.choice(self._seeds)
        holder[place[-1]] = _at(orjson.loads(other.text), self._random.choice(other.places))
        return "transplant"

    def _rename(self, _root: Any, holder: Any, place: Place) -> str:
        if isinstance(holder, dict):
            holder[self._random.choice(_KEYS)] = holder.pop(str(place[-1]))
        return "rename"


def _at(root: Any, place: Place) -> Any:
    """Return the value at ``place``; None if a mutation took it away."""
    for part in place:
        if not _has(root, part):
            return None
        root = root[part]
    return root


def _has(holder: Any, part: str | int) -> bool:
    return (type(holder) is dict and part in holder) or (type(holder) is list and type(part) is int and part < len(holder))
