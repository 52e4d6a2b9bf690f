"""Remember results while the records and views of the snapshot that they depend on are the same objects."""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, Final, TypeVar, TypeVarTuple, cast

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
#: Maximum number of results under one name.
_REMEMBERED: Final = 2048
_Function = TypeVar("_Function", bound=Callable[..., Any])
#: Characters of the longest text whose result is cached: users may write texts of a megabyte where the API expects a name.
LONGEST_TEXT: Final = 256


class _ResultsByText(dict[Any, Any]):
    """Results of a function of one text; looking up one that is known is a look into a dict."""

    def __init__(self, function: Callable[[Any], Any], most: int) -> None:
        super().__init__()
        self._function, self.most = function, most

    def __missing__(self, text: Any) -> Any:  # noqa: ANN401 - the argument and the result of the function
        result = self._function(text)
        if type(text) is not str or len(text) <= LONGEST_TEXT:
            if len(self) >= self.most:
                self.clear()
            self[text] = result
        return result


def cached(most: int) -> Callable[[_Function], _Function]:
    """Cache the results of a function of one text, or of several, for at most ``most`` of them, none above 256 characters."""

    def decorate(function: _Function) -> _Function:
        if len(signature(function).parameters) == 1:
            return cast("_Function", _ResultsByText(function, most).__getitem__)
        remembering = lru_cache(maxsize=most)(function)

        @wraps(remembering)
        def bounded(*args: Any) -> Any:  # noqa: ANN401 - the arguments and the result of the function
            for text in args:
                if type(text) is str and len(text) > LONGEST_TEXT:
                    return function(*args)
            return remembering(*args)

        return cast("_Function", bounded)

    return decorate


def remembered(
    *, by: Callable[[*_Arguments], Hashable | None], on: Callable[[*_Arguments], tuple[object, ...]]
) -> Callable[[Callable[[*_Arguments], _Result]], Callable[[*_Arguments], _Result]]:
    """Remember the results of a function of positional arguments, which is never None, in the memo of its ``snapshot``.

    Args:
        by: returns a key that only arguments with equal results have; None if the result is not remembered.
        on: returns the records and views of the snapshot that the result depends on; they never change, and are compared by
            identity.
    """

    def decorate(function: Callable[[*_Arguments], _Result]) -> Callable[[*_Arguments], _Result]:
        name = f"{function.__module__}.{function.__qualname__}"
        index = list(signature(function).parameters).index("snapshot")

        @wraps(function)
        def remembering(*args: *_Arguments) -> _Result:
            key = by(*args)
            if key is None:
                return function(*args)
            snapshot: Any = args[index]
            rests_on = on(*args)
            result: _Result | None = recall(snapshot.memo, name, key, *rests_on)
            if result is None:
                result = function(*args)
                keep(snapshot.memo, name, key, result, *rests_on)
            return result

        return remembering

    return decorate


def remember(memo: dict[Any, Any], key: Any, value: Any) -> None:  # noqa: ANN401 - any hashable, anything
    """Store ``value`` in ``memo``, after clearing a memo that has reached its limit."""
    if len(memo) >= _REMEMBERED:
        memo.clear()
    memo[key] = value


def recall(memo: dict[Any, Any], name: str, key: Any, *rests_on: object) -> Any | None:  # noqa: ANN401 - any hashable, anything
    """Return the value that :func:`keep` stored under ``name`` for ``key``; None if it depends on other objects."""
    entries = memo.get(name)
    entry = entries.get(key) if entries else None
    if entry is None:
        return None
    stored, value = entry
    if len(stored) != len(rests_on):
        return None
    for before, now in zip(stored, rests_on, strict=True):
        if before is not now:
            return None
    return value


def keep(memo: dict[Any, Any], name: str, key: Any, value: Any, *rests_on: object) -> None:  # noqa: ANN401 - any hashable, anything
    """Store ``value``, which depends on ``key`` and ``rests_on`` and is not None; do nothing for a ``key`` of None."""
    if key is not None:
        remember(memo.setdefault(name, {}), key, (rests_on, value))
