"""The review that is sent over and over, for /mutate and, as mutated, for /validate."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jsonpatch
import orjson

_REVIEW: Final = Path(__file__).parent / "review.json"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"


def recorded(*, namespace: str = "", queue: str = "") -> bytes:
    """The recorded review; with ``namespace`` and ``queue``, as sent to a cluster that has these."""
    review = orjson.loads(_REVIEW.read_bytes())
    request = review["request"]
    metadata = request["object"]["metadata"]
    if namespace:
        request["namespace"] = metadata["namespace"] = namespace
    if queue:
        metadata["labels"][_QUEUE] = queue
    return orjson.dumps(review)


def bodies(review: bytes, ask: Callable[[str, bytes], bytes]) -> tuple[bytes, bytes]:
    """The review for /mutate, and the one for /validate: the same object as mutated, the way the apiserver goes on.

    Args:
        review: the review for /mutate.
        ask: what answers the review of an endpoint (``mutate`` or ``validate``).

    Raises:
        RuntimeError: the review is refused: what a refusal costs is not what is measured.
    """
    asked = orjson.loads(review)
    found: Any = _allowed(ask("mutate", review)).get("patch")
    obj = asked["request"]["object"]
    mutated = jsonpatch.apply_patch(obj, orjson.loads(base64.b64decode(found))) if found else obj
    after = orjson.dumps({**asked, "request": {**asked["request"], "object": mutated}})
    _allowed(ask("validate", after))
    return review, after


def _allowed(answer: bytes) -> dict[str, Any]:
    response: dict[str, Any] = orjson.loads(answer)["response"]
    if not response["allowed"]:
        message = f"the review that is measured is refused: {response['status']['message']}"
        raise RuntimeError(message)
    return response
