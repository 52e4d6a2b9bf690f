"""Write the matchConditions of the webhooks: the CEL expressions by which the apiserver chooses the objects that it sends.

The apiserver limits the cost of an expression (1,000,000) and of all conditions of a webhook (2,500,000; Kubernetes 1.36,
``apiserver/pkg/apis/cel/config.go``). Above a limit, a webhook that fails open is not called, and one that fails closed refuses
the object. The time of a loop grows with the square of its length, which no timeout of a webhook bounds. So an expression
counts the entries of a list, and the characters of a text, before it looks at them. It sends what is over the bounds below.
"""

from collections.abc import Iterable
from typing import Final

from gpugate.policies.engine.owners import identities_of
from gpugate.policies.kube.accelerators import LOOKS_LIKE
from gpugate.policies.kube.cel import literal
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import MIRROR
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
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind

# The bounds, several times what the largest of 5,820 pod templates has (see the rule ``object-size``).
#: Containers of an object, init and ephemeral containers among them.
CONTAINERS: Final = 200
#: Names of resources in the requests and limits of an object.
RESOURCE_NAMES: Final = 500
#: Characters of the name of a resource or the key of a label.
NAME: Final = 128
#: Environment variables and volume mounts of a pod template.
ENTRIES: Final = 2000
#: Volumes of a pod template.
VOLUMES: Final = 256
#: Characters of a path.
PATH: Final = 255
#: Annotations of a pod template.
ANNOTATIONS: Final = 1000
#: Tolerations, and expressions of the required node affinity.
TERMS: Final = 64
#: Labels of a node selector.
LABELS: Final = 32
#: Owners of an object.
OWNERS: Final = 100
#: Pod templates of a custom object in a list or map of its own.
POD_SETS: Final = 100
#: Objects in a wrapper.
COMPONENTS: Final = 64

_OBJECTS: Final = "[object, oldObject].filter(o, o != null)"
#: Whether ``spec`` requests an accelerator.
_REQUESTS_ACCELERATOR: Final = f"""\
spec.?resourceClaims.orValue([]).size() > 0 ||
[spec.?containers, spec.?initContainers].exists(list, list.orValue([]).exists(container,
[container.?resources.?limits, container.?resources.?requests].exists(amounts, amounts.orValue({{}}).exists(name,
name.size() > {NAME} || name.contains('/') && amounts.value()[name] != '0' && !name.endsWith('_monitoring') &&
name.matches('(?i){LOOKS_LIKE}')))))"""
#: Whether the pod specs in the lists ``all`` are over the bounds.
_MANY_REQUESTS: Final = f"""\
all.map(specs, specs.map(spec,
spec.?containers.orValue([]).size() + spec.?initContainers.orValue([]).size()).sum()).sum() > {CONTAINERS} ||
all.map(specs, specs.map(spec, [spec.?containers, spec.?initContainers].map(list, list.orValue([]).map(container,
container.?resources.?limits.orValue({{}}).size() + container.?resources.?requests.orValue({{}}).size())
.sum()).sum()).sum()).sum() > {RESOURCE_NAMES}"""
(_PER_NODE,) = (kind for kind in KINDS if kind.per_node)
(_REVISION,) = (kind for kind in KINDS if kind.is_revision_of_owner)
_OWNERS: Final = "object.metadata.?ownerReferences.orValue([])"


def _is_no(controller: str) -> str:
    """Return the CEL expression that the caller is not this controller of Kubernetes: the owner that it names may not be true."""
    return f"!(request.userInfo.username in\n{literal(identities_of(controller))})"


#: Conditions that exclude objects, by name.
EXCLUDING: Final = {
    "is-no-mirror-pod": f"!('{MIRROR}' in object.metadata.?annotations.orValue({{}}))",
    "is-no-replica-set-of-a-controller": (
        f"request.resource.resource != '{_REVISION.resource}' ||\n{_OWNERS}.size() > {OWNERS} ||\n"
        f"!{_OWNERS}.exists(owner, owner.?controller.orValue(false)) ||\n{_is_no('deployment')}"
    ),
    "is-not-being-deleted": "!has(object.metadata.deletionTimestamp)",
    "changes-more-than-finalizers": (
        "oldObject == null || object.spec != oldObject.spec ||\n"
        "object.metadata.?labels != oldObject.metadata.?labels ||\n"
        "object.metadata.?annotations != oldObject.metadata.?annotations"
    ),
}


def _cel_list(texts: Iterable[str]) -> str:
    return literal(sorted(texts))


def _names(key: str, *texts: str) -> str:
    """Return the CEL expression that a key, or another of ``texts``, contains a word for accelerators."""
    return (
        f"({key}.size() > {NAME} ||\n!{key}.endsWith('{CPU_KEY}') && !{key}.startsWith('{NETWORK_KEYS}') &&"
        f" [{', '.join((key, *texts))}].exists(text, text.matches(\n'{MARKING_WORDS}')))"
    )


#: Conditions for the pods ``t`` (metadata and spec) that request no accelerator but may access one, as in
#: :func:`gpugate.policies.workloads.device_access.may_access_devices`. First: the pods take devices.
_TAKES_DEVICES: Final = f"""\
[[t.spec.?containers, t.spec.?initContainers, t.spec.?ephemeralContainers]].exists(lists,
lists.map(list, list.orValue([]).size()).sum() > {CONTAINERS} ||
lists.map(list, list.orValue([]).map(container,
container.?env.orValue([]).size() + container.?volumeMounts.orValue([]).size()).sum()).sum() > {ENTRIES} ||
lists.exists(list, list.orValue([]).exists(container,
container.?env.orValue([]).exists(entry, entry.name in
{_cel_list(VARIABLES)} &&
(entry.?valueFrom.hasValue() || !(entry.?value.orValue('') in {_cel_list(NO_DEVICES)}))) ||
container.?volumeMounts.orValue([]).exists(mount, mount.mountPath.size() > {PATH} ||
mount.mountPath.contains('{DEVICE_LIST}'))))) ||
t.spec.?volumes.orValue([]).size() > {VOLUMES} ||
t.spec.?volumes.orValue([]).exists(volume, volume.?hostPath.?path.orValue('').size() > {PATH} ||
volume.?hostPath.?path.orValue('').matches('{DEVICE_FILES}')) ||
t.?metadata.?annotations.orValue({{}}).size() > {ANNOTATIONS} ||
t.?metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{DEVICE_ANNOTATIONS}'))"""

_REQUIRED_TERMS: Final = (
    "t.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"
)
#: Second: the pods select accelerator nodes, by tolerations or labels.
_SELECTS_GPU: Final = f"""\
!(t.spec.?priorityClassName.orValue('') in {_cel_list(SYSTEM_CLASSES)}) &&
(t.spec.?tolerations.orValue([]).size() > {TERMS} || t.spec.?nodeSelector.orValue({{}}).size() > {LABELS} ||
{_REQUIRED_TERMS}.size() > {TERMS} ||
{_REQUIRED_TERMS}
.map(term, term.?matchExpressions.orValue([]).size()).sum() > {TERMS} ||
t.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') != '' && {_names("one.key", "one.?value.orValue('')")}) ||
t.spec.?nodeSelector.orValue({{}}).exists(key, t.spec.nodeSelector[key] != 'false' && {_names("key")}) ||
{_REQUIRED_TERMS}.exists(term,
term.?matchExpressions.orValue([]).exists(one, !(one.operator in {_cel_list(AVOIDING)}) &&
one.?values.orValue([]) != ['false'] && {_names("one.key")})))"""
_NO_DAEMON_SET: Final = f"request.resource.resource != '{_PER_NODE.resource}'"
_NO_DAEMON_SET_POD: Final = (
    f"{_OWNERS}.size() > {OWNERS} ||\n!{_OWNERS}.exists(owner,\n"
    f"owner.?controller.orValue(false) && owner.kind == '{_PER_NODE.kind}')"
)


def requests_in(place: str) -> str:
    """Return the condition that an object ``o``, before or after the request, requests an accelerator in its pod spec ``place``."""
    return _any_requests(f"[{_OBJECTS}.map(o, {place})]")


def requests_in_custom(kinds: list[WorkloadKind]) -> str:
    """Return the condition that an object of ``kinds``, those of one group, requests an accelerator."""
    (wraps,) = {kind.wraps for kind in kinds}
    if wraps is not None:
        wrapped, resources = _specs(KINDS, "c.?template"), _resources(KINDS, "c.?template")
        states = "".join(f" ||\n{value}.hasValue()" for value in resources)
        components = f"{_optional('o', wraps)}.orValue([])"
        requests = _any_requests(f"{components}.map(c,\n{wrapped})")
        # A wrapper with podSets may have pods anywhere.
        return (
            f"{_OBJECTS}.exists(o, {components}.size() > {COMPONENTS} ||\n"
            f"{components}.exists(c, c.?podSets.orValue([]).size() > 0{states}) ||\n"
            f"{components}.map(c, {_number(KINDS, 'c.?template')}).sum() > {POD_SETS} ||\n{requests})"
        )
    lists = [f"[optional.of({{'containers': [{{?'resources': {value}}}]}})]" for value in _resources(kinds, "o")]
    templates, number = _specs(kinds, "o"), _number(kinds, "o")
    lists += [f"({templates})"] if templates else []
    many = f"{number} > {POD_SETS} ||\n" if number else ""
    requests = _any_requests(f"[{' + '.join(lists)}]")
    return f"{_OBJECTS}.exists(o, {many}{requests})"


def accesses_in(place: str, *, is_pod: bool) -> str:
    """Return the condition that the pods of ``place`` (metadata and spec) may access accelerators without a request."""
    no_daemon_set = _NO_DAEMON_SET_POD if is_pod else _NO_DAEMON_SET
    return f"[{place}].exists(t,\n{_TAKES_DEVICES} ||\n({no_daemon_set}) &&\n{_SELECTS_GPU})"


def _any_requests(lists: str) -> str:
    """Return the condition that one of the pod specs requests an accelerator; ``lists`` is a CEL list of lists of them."""
    return f"[{lists}].exists(all,\n{_MANY_REQUESTS} ||\nall.exists(specs, specs.exists(spec,\n{_REQUESTS_ACCELERATOR})))"


def _resources(kinds: Iterable[WorkloadKind], root: str) -> list[str]:
    """Return the optional CEL values of the resources that objects of ``kinds`` at ``root`` state without a container."""
    return [_optional(root, place.resources) for kind in kinds for place in kind.pod_sets if place.resources is not None]


def _paths(kinds: Iterable[WorkloadKind]) -> dict[Path, bool]:
    """Return the paths of the pod specs that objects of ``kinds`` may have, and whether ``*`` in a path stands for a key."""
    return {(*place.template, "spec"): bool(place.role) for kind in kinds for place in kind.pod_sets if place.resources is None}


def _number(kinds: Iterable[WorkloadKind], root: str) -> str:
    """Return a CEL expression of the number of pod templates in lists and maps; empty if ``kinds`` have none."""
    sizes = [
        f"{_optional(root, path[: path.index('*')])}.orValue({'{}' if is_map else '[]'}).size()"
        for path, is_map in _paths(kinds).items()
        if "*" in path
    ]
    return " +\n".join(sizes)


def _specs(kinds: Iterable[WorkloadKind], root: str) -> str:
    """Return a CEL list of the pod specs (optional values) that objects of ``kinds`` at ``root`` may have."""
    paths = _paths(kinds)
    plain = [_optional(root, path) for path in paths if "*" not in path]
    parts = ["[" + ",\n".join(plain) + "]"] if plain else []
    for path, is_map in paths.items():
        if "*" in path:
            at = path.index("*")
            holder = _optional(root, path[:at])
            if is_map:
                parts.append(f"{holder}.orValue({{}}).map(x, {_optional(f'{holder}[?x]', path[at + 1 :])})")
            else:
                parts.append(f"{holder}.orValue([]).map(x, {_optional('x', path[at + 1 :])})")
    return " +\n".join(parts)


def _optional(root: str, path: Path) -> str:
    return "".join((root, *(f".?{part}" for part in path)))
