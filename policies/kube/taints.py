"""Recognize taints and labels of accelerator nodes by the words in them."""

import re
from collections.abc import Iterable
from typing import Final

from gpugate.policies.kube.memo import cached

#: Roles of nodes that run the cluster itself; administrators define other roles (``node-role.kubernetes.io/gpu``).
NEVER_ROLES: Final = frozenset(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "controlplane", "master", "etcd", "infra", "bootstrap")
)
#: Words in the key or value of a taint of accelerator nodes.
_ACCELERATOR_WORDS: Final = frozenset(
    ["gpu", "gpus", "accelerator", "accelerators", "tpu", "neuron", "gaudi", "nvidia", "amd", "cuda", "rocm", "trainium"]
)
#: Words of taints that reserve nodes for a part of the accelerator pods.
_RESERVING_WORDS: Final = frozenset(["spot", "preemptible", "reserved", "dedicated", "team", "tenant", "owner"])

#: Labels of a node's CPU (amd64) and of NVIDIA's network operator: they contain the words, but mark no accelerators.
CPU_KEY: Final = "kubernetes.io/arch"
NETWORK_KEYS: Final = "network.nvidia.com/"


@cached(1024)
def is_never_tolerated(key: str, value: str) -> bool:
    """Return whether the taint is one of maintenance, shutdown or a node's condition."""
    return key in NEVER_ROLES or is_transient_taint(key, value)


@cached(1024)
def names_accelerators(key: str, value: str = "") -> bool:
    """Return whether the key or the value of a taint or label contains a word for accelerators."""
    if not key or key.endswith(CPU_KEY) or key.startswith(NETWORK_KEYS):
        return False
    return not _ACCELERATOR_WORDS.isdisjoint(words_in(key, value))


@cached(1024)
def marks_accelerators(key: str, value: str) -> bool:
    """Return whether the taint reserves its node for all accelerator pods."""
    never = is_never_tolerated(key, value) or not _RESERVING_WORDS.isdisjoint(words_in(key, value))
    return not never and names_accelerators(key, value)


@cached(1024)
def dedicates_to_accelerators(key: str, value: str) -> bool:
    """Return whether the taint dedicates its node to accelerators in general: ``dedicated=gpu``."""
    if key.rpartition("/")[2] != "dedicated" or is_never_tolerated(key, value):
        return False
    words = words_in(value)
    return bool(words) and words <= _ACCELERATOR_WORDS


_PREFIXES: Final = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/", "karpenter.sh/"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
)
#: Taints that agents remove when they run on the node: ``ebs.csi.aws.com/agent-not-ready``.
_SUFFIXES: Final = ("not-ready",)
_WORDS: Final = frozenset(
    {
        *("unschedulable", "maintenance", "drain", "draining", "cordon", "cordoned", "shutdown", "terminating", "termination"),
        *("deletion", "disrupted", "disruption", "repair", "unhealthy", "faulty", "fault", "broken", "upgrade", "upgrading"),
        *("update", "quarantine", "interruption"),
    }
)


def words_in(*texts: str) -> set[str]:
    """Return the words of ``texts``, in lower case."""
    return {word.lower() for text in texts for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)}


@cached(1024)
def is_transient_taint(key: str, value: str) -> bool:
    """Return whether the taint is one of maintenance, shutdown, start or a node's condition."""
    return key.startswith(_PREFIXES) or key.endswith(_SUFFIXES) or not _WORDS.isdisjoint(words_in(key, value))


def not_transient_in_cel(name: str, *, whole_key: bool = True) -> str:
    """Return a CEL expression that is true unless ``name`` is the key (``whole_key``) or value of a transient taint."""
    checks = [f"!{name}.matches('{_WORDS_PATTERN}')"]
    if whole_key:
        checks += [f"!{name}.startsWith('{prefix}')" for prefix in _PREFIXES]
        checks += [f"!{name}.endsWith('{suffix}')" for suffix in _SUFFIXES]
    return " && ".join(checks)


def words_pattern(words: Iterable[str]) -> str:
    """Return a pattern of texts that contain one of ``words`` as split by :func:`words_in`, without lookahead (RE2)."""
    lower, title, upper = ("|".join(sorted(map(change, words))) for change in (str.lower, str.title, str.upper))
    return f"(^|[^A-Za-z])({lower})([^a-z]|$)|({title})([^a-z]|$)|(^|[^A-Z])({upper})([^A-Za-z]|$|[A-Z][a-z])"


_WORDS_PATTERN: Final = words_pattern(_WORDS)
#: The words of accelerators as a CEL pattern for the webhook configuration.
MARKING_WORDS: Final = words_pattern(_ACCELERATOR_WORDS)
