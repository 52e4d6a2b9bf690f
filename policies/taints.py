"""Taints and labels of nodes that say "accelerators only", told by the words in them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gpugate.policies.passing import is_passing, words_in, words_pattern

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

#: Those words for the apiserver's own language, which reads a pattern as Python does: what the webhooks are sent.
MARKING_WORDS: Final = words_pattern(_ACCELERATOR_WORDS)
#: A node's CPU (amd64), and the labels of NVIDIA's network operator: no accelerators, though the words are there.
CPU_KEY: Final = "kubernetes.io/arch"
NETWORK_KEYS: Final = "network.nvidia.com/"


@lru_cache(maxsize=1024)
def is_never_tolerated(key: str, value: str) -> bool:
    """Whether the taint is one of maintenance, shutdown or a node's condition."""
    return key in NEVER_ROLES or is_passing(key, value)


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
