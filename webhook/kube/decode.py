"""Decode what an apiserver sends, whatever users have put into it.

The apiserver passes on, byte by byte, what a user wrote into a field of any content (the ``parameters`` of a ResourceClaim):
nested thousands deep, not in UTF-8, with halves of surrogate pairs. None of that may keep the object, and all that come
behind it in the same stream, from being read.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

#: Kubernetes' own fields nest a few dozen deep; orjson reads about a thousand levels and writes 254.
_DEEPEST: Final = 200
# Possessive: a string without an end must not be tried in every possible way.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_OPENS: Final = frozenset(b"[{")
_CLOSES: Final = frozenset(b"]}")


def decode(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value in `body`; what lies too deep is null, what is no text has replacement characters.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _leniently(_shallow(body))


def _leniently(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        found = json.loads(body.decode(errors="replace"))
    # Halves of surrogate pairs could not be written to any log: they are replaced on the way out, and read again.
    return orjson.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))


def _shallow(body: bytes) -> bytes:
    """`body` with null in place of what lies deeper than `_DEEPEST`."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in _OPENS:
            depth += 1
            if depth == _DEEPEST + 1:
                kept += (body[start : token.start()], b"null")
                start = len(body)
        elif first in _CLOSES:
            if depth == _DEEPEST + 1:
                start = token.end()
            depth -= 1
    return b"".join((*kept, body[start:]))
