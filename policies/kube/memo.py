"""What was worked out once, kept to be found again while all that it rests on is the very same."""

from __future__ import annotations

from operator import is_not
from typing import Any, Final

#: Different results remembered under one name; workloads of one team are much alike.
_REMEMBERED: Final = 2048


def remember(memo: dict[Any, Any], key: Any, value: Any) -> None:  # noqa: ANN401 - any hashable, anything
    """Keep ``value`` in a memo, which stays small."""
    if len(memo) >= _REMEMBERED:
        memo.clear()
    memo[key] = value


def recall(memo: dict[Any, Any], name: str, key: Any, *rests_on: object) -> Any | None:  # noqa: ANN401 - any hashable, anything
    """What :func:`keep` was given under ``name`` for ``key``; None where it rests on other objects than ``rests_on``."""
    entries = memo.get(name)
    found = entries.get(key) if entries else None
    if found is None or len(found[0]) != len(rests_on) or any(map(is_not, found[0], rests_on)):
        return None
    return found[1]


def keep(memo: dict[Any, Any], name: str, key: Any, value: Any, *rests_on: object) -> None:  # noqa: ANN401 - any hashable, anything
    """Keep ``value``, which follows from ``key`` and ``rests_on`` and is not None; a ``key`` of None is not kept.

    What it rests on are records and views of facts, which never change: they are told apart by identity.
    """
    if key is not None:
        remember(memo.setdefault(name, {}), key, (rests_on, value))
