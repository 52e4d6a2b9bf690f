"""Taints that come and go with what a node is going through: they say nothing about what it could ever hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_PREFIXES: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node.cilium.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
)
#: What agents take off once they run on the node: ``ebs.csi.aws.com/agent-not-ready``.
_SUFFIXES: Final = ("not-ready",)
_WORDS: Final = frozenset(
    [
        "unschedulable",
        "maintenance",
        "drain",
        "draining",
        "cordon",
        "cordoned",
        "shutdown",
        "terminating",
        "termination",
        "deletion",
        "disrupted",
        "disruption",
        "repair",
        "unhealthy",
        "faulty",
        "fault",
        "broken",
        "upgrade",
        "upgrading",
        "update",
        "quarantine",
        "interruption",
    ]
)


def words_in(*texts: str) -> set[str]:
    """The words of ``texts``, in lower case."""
    return {word.lower() for text in texts for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)}


@lru_cache(maxsize=1024)
def is_passing(key: str, value: str) -> bool:
    """Whether the taint is one of maintenance, shutdown, start or a node's condition."""
    return key.startswith(_PREFIXES) or key.endswith(_SUFFIXES) or not _WORDS.isdisjoint(words_in(key, value))


def passing_in_cel(name: str, *, whole_key: bool = True) -> str:
    """An expression in CEL that is true where the text ``name`` is no such taint's key (``whole_key``) or value."""
    checks = [f"!{name}.matches('{_WORDS_PATTERN}')"]
    if whole_key:
        checks += [f"!{name}.startsWith('{prefix}')" for prefix in _PREFIXES]
        checks += [f"!{name}.endsWith('{suffix}')" for suffix in _SUFFIXES]
    return " && ".join(checks)


def words_pattern(words: Iterable[str]) -> str:
    """A pattern for a text with one of ``words`` in it, as :func:`words_in` cuts it up, for an engine that cannot look ahead."""
    lower, title, upper = ("|".join(sorted(map(change, words))) for change in (str.lower, str.title, str.upper))
    return f"(^|[^A-Za-z])({lower})([^a-z]|$)|({title})([^a-z]|$)|(^|[^A-Z])({upper})([^A-Za-z]|$|[A-Z][a-z])"


_WORDS_PATTERN: Final = words_pattern(_WORDS)
