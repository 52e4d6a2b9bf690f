"""Taints and labels of nodes that say "accelerators only", told by the words in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: Roles of nodes that run the cluster itself; others (``node-role.kubernetes.io/gpu``) are names that its owner gave.
NEVER_ROLES: Final = frozenset(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "controlplane", "master", "etcd", "infra", "bootstrap")
)
#: Words in a taint's key or value that mark a node as one for accelerators.
_ACCELERATOR_WORDS: Final = frozenset(
    ["gpu", "gpus", "accelerator", "accelerators", "tpu", "neuron", "gaudi", "nvidia", "amd", "cuda", "rocm", "trainium"]
)
#: Words of taints that reserve nodes for something else; such a node is not for every accelerator pod.
_RESERVING_WORDS: Final = frozenset(["spot", "preemptible", "reserved", "dedicated", "team", "tenant", "owner"])

#: A node's CPU (amd64), and the labels of NVIDIA's network operator: no accelerators, though the words are there.
CPU_KEY: Final = "kubernetes.io/arch"
NETWORK_KEYS: Final = "network.nvidia.com/"


@lru_cache(maxsize=1024)
def is_never_tolerated(key: str, value: str) -> bool:
    """Whether the taint is one of maintenance, shutdown or a node's condition."""
    return key in NEVER_ROLES or is_transient_taint(key, value)


@lru_cache(maxsize=1024)
def names_accelerators(key: str, value: str = "") -> bool:
    """Whether the key or the value of a taint or label has a word in it that stands for accelerators."""
    return bool(key) and not key.endswith(CPU_KEY) and not key.startswith(NETWORK_KEYS) and _has_word(key, value)


def _has_word(*texts: str) -> bool:
    return any(not _ACCELERATOR_WORDS.isdisjoint(words_in(text)) for text in texts)


@lru_cache(maxsize=1024)
def marks_accelerators(key: str, value: str) -> bool:
    """Whether the taint says "accelerators only" and nothing more."""
    if is_never_tolerated(key, value) or not _RESERVING_WORDS.isdisjoint(words_in(key, value)):
        return False
    return names_accelerators(key, value)


@lru_cache(maxsize=1024)
def dedicates_to_accelerators(key: str, value: str) -> bool:
    """Whether the taint dedicates its node to accelerators and to nobody in particular: ``dedicated=gpu``."""
    words = words_in(value)
    return (
        key.rpartition("/")[2] == "dedicated" and not is_never_tolerated(key, value) and bool(words) and words <= _ACCELERATOR_WORDS
    )


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
def is_transient_taint(key: str, value: str) -> bool:
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


#: Those words for the apiserver's own language, which reads a pattern as Python does: what the webhooks are sent.
MARKING_WORDS: Final = words_pattern(_ACCELERATOR_WORDS)
