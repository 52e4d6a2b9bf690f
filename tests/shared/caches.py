"""The caches of functions of one text."""

from __future__ import annotations

from typing import Any


def results_of(function: Any) -> Any:
    """The results that a function with `gpugate.policies.kube.memo.cached` has cached, by its argument."""
    return function.__self__
