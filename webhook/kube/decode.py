"""Decode JSON from the apiserver, also JSON that strict parsers reject.

The apiserver passes on, byte by byte, what users write into fields of any content (the ``parameters`` of a ResourceClaim):
thousands of levels, bytes that are not UTF-8, unpaired surrogates. Such an object and all that follow it in the stream must
still be read.
"""

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
    """Return the JSON value in `body`, with null for values that are too deep and replacement characters for invalid text.

    Raises:
        ValueError: `body` is not JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _leniently(_shallow(body))


def _leniently(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        value = json.loads(body.decode(errors="replace"))
    # No log can write unpaired surrogates: encoding replaces them, and the text is read again.
    return orjson.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _shallow(body: bytes) -> bytes:
    """Replace every value deeper than `_DEEPEST` by null."""
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in _OPENS:
            depth += 1
            if depth == _DEEPEST + 1:
                parts += (body[start : token.start()], b"null")
                start = len(body)
        elif first in _CLOSES:
            if depth == _DEEPEST + 1:
                start = token.end()
            depth -= 1
    return b"".join((*parts, body[start:]))


def decode_object(body: bytes) -> JsonObject:
    """Return the JSON object in `body`.

    Raises:
        ConnectionLostError: `body` is not a JSON object; a proxy in front of the apiserver answered.
    """
    try:
        result = decode(body)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        message = f"the answer is not a JSON object: {body[:80]!r}"
        raise ConnectionLostError(message)
    return result


async def watch_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[JsonObject]:
    """Split the byte stream of a watch, chunked at any position, into its events: one per line.

    Raises:
        Gone: an ERROR event with code 410: the resourceVersion is too old.
        ApiError: any other ERROR event.
        ConnectionLostError: a line is not a JSON object, or the stream ended inside of one.
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
