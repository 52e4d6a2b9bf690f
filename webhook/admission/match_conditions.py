"""CEL conditions that send the webhook objects which request no accelerator but may reach one.

The same conditions as :func:`gpugate.policies.workloads.device_access.may_access_devices`.
"""

from collections.abc import Iterable
from typing import Final

from gpugate.policies.kube.cel import literal
from gpugate.policies.kube.taints import CPU_KEY, MARKING_WORDS, NETWORK_KEYS
from gpugate.policies.workloads.device_access import (
    AVOIDING,
    DEVICE_ANNOTATIONS,
    DEVICE_FILES,
    DEVICE_LIST,
    NO_DEVICES,
    SYSTEM_CLASSES,
    VARIABLES,
)
from gpugate.policies.workloads.kinds import KINDS


def _list(texts: Iterable[str]) -> str:
    return literal(sorted(texts))


def _names(key: str, *texts: str) -> str:
    """Return the CEL expression that a key, or another of ``texts``, contains a word for accelerators."""
    return (
        f"!{key}.endsWith('{CPU_KEY}') &&\n!{key}.startsWith('{NETWORK_KEYS}') &&"
        f" [{', '.join((key, *texts))}].exists(text, text.matches(\n'{MARKING_WORDS}'))"
    )


#: The pods ``t`` (metadata and spec) take devices.
_TAKES_DEVICES: Final = f"""\
[t.spec.?containers, t.spec.?initContainers, t.spec.?ephemeralContainers].exists(list, list.orValue([]).exists(container,
container.?env.orValue([]).exists(entry, entry.name in
{_list(VARIABLES)} &&
(entry.?valueFrom.hasValue() || !(entry.?value.orValue('') in {_list(NO_DEVICES)}))) ||
container.?volumeMounts.orValue([]).exists(mount, mount.mountPath.contains('{DEVICE_LIST}')))) ||
t.spec.?volumes.orValue([]).exists(volume, volume.?hostPath.?path.orValue('').matches(
'{DEVICE_FILES}')) ||
t.?metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{DEVICE_ANNOTATIONS}'))"""

#: The pods ``t`` select accelerator nodes, by tolerations or labels.
_SELECTS_GPU: Final = f"""\
!(t.spec.?priorityClassName.orValue('') in {_list(SYSTEM_CLASSES)}) &&
(t.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') != '' && {_names("one.key", "one.?value.orValue('')")}) ||
t.spec.?nodeSelector.orValue({{}}).exists(key, t.spec.nodeSelector[key] != 'false' && {_names("key")}) ||
t.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]).exists(term,
term.?matchExpressions.orValue([]).exists(one, !(one.operator in {_list(AVOIDING)}) &&
one.?values.orValue([]) != ['false'] && {_names("one.key")})))"""

(_PER_NODE,) = (kind for kind in KINDS if kind.per_node)
_NO_DAEMON_SET: Final = f"request.resource.resource != '{_PER_NODE.resource}'"
_NO_DAEMON_SET_POD: Final = (
    "!object.metadata.?ownerReferences.orValue([]).exists(owner,\n"
    f"owner.?controller.orValue(false) && owner.kind == '{_PER_NODE.kind}')"
)


def access_condition(place: str, *, is_pod: bool) -> str:
    """Return the condition for objects with their pods at ``place``."""
    return f"[{place}].exists(t,\n{_TAKES_DEVICES} ||\n({_NO_DAEMON_SET_POD if is_pod else _NO_DAEMON_SET}) &&\n{_SELECTS_GPU})"
