"""Decode what an apiserver sends, whatever users have put into it.

The apiserver passes on, byte by byte, what a user wrote into a field of any content (the ``parameters`` of a ResourceClaim):
nested thousands deep, not in UTF-8, with halves of surrogate pairs. None of that may keep the object, and all that come
behind it in the same stream, from being read.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

import orjson

from gpugate.webhook.kube.errors import ConnectionLostError, refusal
from gpugate.webhook.kube.types import JsonObject

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


def decode_object(body: bytes) -> JsonObject:
    """Return the JSON object in `body`.

    Raises:
        ConnectionLostError: it is none; what stands between us and the apiserver answered.
    """
    try:
        found = decode(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        message = f"the answer is not a JSON object: {body[:80]!r}"
        raise ConnectionLostError(message)
    return found


async def watch_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[JsonObject]:
    """Cut a watch's byte stream, chunked anyhow, into its events: one per line.

    Raises:
        Gone: an ERROR event said that the resourceVersion is too old.
        ApiError: any other ERROR event.
        ConnectionLostError: a line is no JSON object, or the stream ended within one.
    """
    tail = b""
    async for chunk in chunks:
        *lines, tail = (tail + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            event = decode_object(line)
            if event.get("type") == "ERROR":
                status = event.get("object") or {}
                raise refusal(int(status.get("code") or 500), status)
            yield event
    if tail.strip():
        message = "the watch ended within an event"
        raise ConnectionLostError(message)
