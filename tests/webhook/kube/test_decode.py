"""Objects that hold what only a user could have meant: the apiserver passes it on, and it must hide nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.webhook.kube.decode import decode, decode_object, watch_events
from gpugate.webhook.kube.errors import ConnectionLostError
from gpugate.webhook.kube.types import JsonObject

DEEP = b"[" * 5000 + b"]" * 5000
#: What `parameters` of a ResourceClaim may hold at a kube-apiserver 1.36, and what is made of it.
HELD: dict[str, tuple[bytes, Any]] = {
    "lists within lists": (b'{"a": ' + DEEP + b"}", None),
    "maps within maps": (b'{"a":' * 2000 + b"1" + b"}" * 2000, None),
    "brackets in strings": (b'{"a": "]]}\\"]", "b": ' + DEEP + b', "c": "[[{\\\\"}', None),
    "no UTF-8": (b'{"a": "\xff\xfe"}', {"a": "\ufffd\ufffd"}),
    "half a surrogate pair": (b'{"a": "\\ud800", "b": "\\ud83d\\ude80"}', {"a": "?", "b": "\U0001f680"}),
}


def event(name: str, parameters: bytes) -> bytes:
    return b'{"type": "ADDED", "object": {"spec": {"parameters": %s}, "metadata": {"name": "%s"}}}\n' % (parameters, name.encode())


async def stream(*lines: bytes) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


@pytest.mark.asyncio
@pytest.mark.parametrize("what", HELD)
async def test_an_object_is_read_whatever_a_user_put_into_it_and_so_is_the_one_behind(what: str) -> None:
    parameters, wanted = HELD[what]
    found: list[JsonObject] = [one async for one in watch_events(stream(event("odd", parameters), event("next", b"1")))]
    assert [one["object"]["metadata"]["name"] for one in found] == ["odd", "next"]
    if wanted is not None:
        assert found[0]["object"]["spec"]["parameters"] == wanted
    orjson.dumps(found)  # it can be logged


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"a": 1', b'{"a": "' + b"x" * 100_000, b"[" * 5000, b"]" * 5000, b"{" + DEEP, b"NaN"]
)
def test_half_an_answer_and_no_json_are_still_no_answer(body: bytes) -> None:
    with pytest.raises(ConnectionLostError):
        decode_object(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_good_json_is_read_as_it_is(value: Any) -> None:
    assert decode(orjson.dumps(value)) == value
    # Beside what is not, too.
    assert decode(b'{"odd": %s, "even": %s}' % (DEEP, orjson.dumps(value)))["even"] == value
