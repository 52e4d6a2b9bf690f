"""Memos: results that stay valid while the objects that they depend on are identical."""

from __future__ import annotations

from operator import is_not
from typing import Any, Final

#: Maximum number of results under one name; workloads of one team are similar.
_REMEMBERED: Final = 2048


def remember(memo: dict[Any, Any], key: Any, value: Any) -> None:  # noqa: ANN401 - any hashable, anything
    """Store ``value`` in a memo of bounded size."""
    if len(memo) >= _REMEMBERED:
        memo.clear()
    memo[key] = value


def recall(memo: dict[Any, Any], name: str, key: Any, *rests_on: object) -> Any | None:  # noqa: ANN401 - any hashable, anything
    """Return the value that :func:`keep` stored under ``name`` and ``key``; None if it depends on other objects."""
    entries = memo.get(name)
    found = entries.get(key) if entries else None
    if found is None or len(found[0]) != len(rests_on) or any(map(is_not, found[0], rests_on)):
        return None
    return found[1]


def keep(memo: dict[Any, Any], name: str, key: Any, value: Any, *rests_on: object) -> None:  # noqa: ANN401 - any hashable, anything
    """Store ``value``, which is not None, for ``key`` and the objects that it depends on; a ``key`` of None is not stored.

    These objects are immutable records and views of the snapshot, compared by identity.
    """
    if key is not None:
        remember(memo.setdefault(name, {}), key, (rests_on, value))
