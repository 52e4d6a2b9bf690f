"""Write the webhook configurations as YAML, from the table of workload kinds.

Every field that the apiserver would default is written out, so that GitOps tools see no difference. The ``matchConditions``
are CEL: the apiserver sends only objects that request an accelerator, or may access one without a request.
"""

import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.engine.owners import identities_of
from gpugate.policies.kube.accelerators import LOOKS_LIKE
from gpugate.policies.kube.cel import literal
from gpugate.policies.kube.fields import Path
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

_REQUESTS_ACCELERATOR: Final = """\
spec.?resourceClaims.orValue([]).size() > 0 ||
[spec.?containers, spec.?initContainers].exists(list, list.orValue([]).exists(container,
[container.?resources.?limits, container.?resources.?requests].exists(amounts, amounts.orValue({}).exists(name,
name.contains('/') && amounts.value()[name] != '0' && !name.endsWith('_monitoring') &&
name.matches('(?i)@LOOKS_LIKE@')))))""".replace("@LOOKS_LIKE@", LOOKS_LIKE)
_OBJECTS: Final = "[object, oldObject].filter(o, o != null)"
#: Kinds of Kubernetes itself, whose objects are typed in conditions: pods, kinds with a pod template, and scheduled kinds.
_PODS: Final = tuple(kind.resource for kind in KINDS if kind.is_pod)
_TEMPLATES: Final = [kind for kind in KINDS if kind.is_built_in and not kind.is_pod and not kind.scheduled]
(_PER_NODE,) = (kind for kind in KINDS if kind.per_node)
(_REVISION,) = (kind for kind in KINDS if kind.is_revision_of_owner)
_SCHEDULED: Final = [kind for kind in KINDS if kind.is_built_in and kind.scheduled]
_HEADS: Final = {
    "mutate": """\
# Written by `make docs` from policies/workloads/kinds and webhook/admission/configuration.py: change it there.
#
# Changes objects that request an accelerator. Without an answer of gpugate they pass unchanged: the validating webhooks
# check the final object.
#
# The name sorts before Kueue's, so that Kueue sees the queue names that gpugate puts in.
""",
    "validate": """\
# Written by `make docs` from policies/workloads/kinds and webhook/admission/configuration.py: change it there.
#
# Checks the final state of objects that request an accelerator. Without an answer of gpugate only these are refused.
# The webhooks called takers-... get objects without a request that can access devices or accelerator nodes. Without an answer
# of gpugate these pass: device plugins, exporters and the GPU operator are such objects (docs/decisions/0019).
# No rule contains DELETE or a status: deletion, cleanup and status updates never wait for gpugate.
""",
}
_REMARK: Final = """\
#
# sideEffects: a refusal may create an Event, and nothing else is written; a dry run creates none (docs/operate/observing.md).
#
# Every field that the apiserver would default is written out, so that a GitOps tool sees no difference. clientConfig.caBundle
# is left out: it belongs to the issuer of the certificate. matchConditions see typed objects: quantities in their shortest
# form (zero is '0'), absent fields absent; objects of custom resources are as written.
"""


def _is_no(controller: str) -> str:
    """Return the CEL expression that the caller is not this controller of Kubernetes: the owner that it names may not be true."""
    return f"!(request.userInfo.username in\n{literal(identities_of(controller))})"


_CONDITIONS: Final = {
    "is-no-mirror-pod": "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))",
    "is-no-replica-set-of-a-controller": (
        f"request.resource.resource != '{_REVISION.resource}' ||\n"
        "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false)) ||\n"
        f"{_is_no('deployment')}"
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
        f"!{key}.endsWith('{CPU_KEY}') &&\n!{key}.startsWith('{NETWORK_KEYS}') &&"
        f" [{', '.join((key, *texts))}].exists(text, text.matches(\n'{MARKING_WORDS}'))"
    )


#: Conditions for the pods ``t`` (metadata and spec) that request no accelerator but may access one, as in
#: :func:`gpugate.policies.workloads.device_access.may_access_devices`. First: the pods take devices.
_TAKES_DEVICES: Final = f"""\
[t.spec.?containers, t.spec.?initContainers, t.spec.?ephemeralContainers].exists(list, list.orValue([]).exists(container,
container.?env.orValue([]).exists(entry, entry.name in
{_cel_list(VARIABLES)} &&
(entry.?valueFrom.hasValue() || !(entry.?value.orValue('') in {_cel_list(NO_DEVICES)}))) ||
container.?volumeMounts.orValue([]).exists(mount, mount.mountPath.contains('{DEVICE_LIST}')))) ||
t.spec.?volumes.orValue([]).exists(volume, volume.?hostPath.?path.orValue('').matches(
'{DEVICE_FILES}')) ||
t.?metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{DEVICE_ANNOTATIONS}'))"""

#: Second: the pods select accelerator nodes, by tolerations or labels.
_SELECTS_GPU: Final = f"""\
!(t.spec.?priorityClassName.orValue('') in {_cel_list(SYSTEM_CLASSES)}) &&
(t.spec.?tolerations.orValue([]).exists(one, one.?key.orValue('') != '' && {_names("one.key", "one.?value.orValue('')")}) ||
t.spec.?nodeSelector.orValue({{}}).exists(key, t.spec.nodeSelector[key] != 'false' && {_names("key")}) ||
t.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]).exists(term,
term.?matchExpressions.orValue([]).exists(one, !(one.operator in {_cel_list(AVOIDING)}) &&
one.?values.orValue([]) != ['false'] && {_names("one.key")})))"""
_NO_DAEMON_SET: Final = f"request.resource.resource != '{_PER_NODE.resource}'"
_NO_DAEMON_SET_POD: Final = (
    "!object.metadata.?ownerReferences.orValue([]).exists(owner,\n"
    f"owner.?controller.orValue(false) && owner.kind == '{_PER_NODE.kind}')"
)


class _Rule(NamedTuple):
    group: str
    versions: tuple[str, ...]
    operations: str
    resources: tuple[str, ...]


class _Webhook(NamedTuple):
    """One webhook.

    Attributes:
        name: first part of its name.
        conditions: names of conditions that exclude objects.
        requests: condition that an object requests an accelerator.
        accesses: condition that an object without a request may access accelerators; empty for other webhooks.
    """

    name: str
    rules: tuple[_Rule, ...]
    conditions: tuple[str, ...]
    requests: str
    accesses: str = ""

    def failure_policy(self, endpoint: str) -> str:
        """Return the failurePolicy: what happens to an object without an answer of gpugate."""
        return "Ignore" if endpoint == "mutate" or self.accesses else "Fail"

    def timeout(self, endpoint: str) -> int:
        """Return the timeout of the apiserver in seconds."""
        return 2 if self.accesses else 3 if endpoint == "mutate" else 5


def configuration(endpoint: str) -> str:
    """Return the configuration of ``endpoint`` (``mutate`` or ``validate``) as YAML."""
    kind, name = {
        "mutate": ("MutatingWebhookConfiguration", "gpugate-mutating"),
        "validate": ("ValidatingWebhookConfiguration", "gpugate-validating"),
    }[endpoint]
    head = f"""\
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: gpugate
webhooks:
"""
    return _HEADS[endpoint] + _REMARK + head + "".join(_webhook_yaml(webhook, endpoint) for webhook in _webhooks(endpoint))


def _webhooks(endpoint: str) -> Iterable[_Webhook]:
    updates = ("is-not-being-deleted", "changes-more-than-finalizers")
    rules = [_Rule("", ("v1",), "CREATE" if endpoint == "mutate" else "CREATE, UPDATE", _PODS)]
    if endpoint == "validate":
        rules.append(_Rule("", ("v1",), "UPDATE", ("pods/ephemeralcontainers", "pods/resize")))
    mirror = ("is-no-mirror-pod",) if endpoint == "mutate" else ("is-no-mirror-pod", *updates)
    yield _Webhook("pods", tuple(rules), mirror, _requests_in("o.spec"))
    yield _Webhook(
        "templates",
        tuple(_rules(_TEMPLATES)),
        ("is-no-replica-set-of-a-controller", *updates),
        _requests_in("o.spec.template.spec"),
    )
    yield _Webhook("cronjobs", tuple(_rules(_SCHEDULED)), updates, _requests_in("o.spec.jobTemplate.spec.template.spec"))
    custom = [kind for kind in KINDS if not kind.is_built_in]
    for group in dict.fromkeys(kind.group for kind in custom):
        kinds = [kind for kind in custom if kind.group == group]
        yield _Webhook(group.replace(".", "-"), tuple(_rules(kinds)), updates, _requests_in_custom(kinds))
    if endpoint == "validate":
        yield from _access_webhooks(updates)


def _access_webhooks(updates: tuple[str, ...]) -> Iterable[_Webhook]:
    """Yield the webhooks for objects that request nothing. Pods of all other kinds pass the first one at creation."""
    pods = (_Rule("", ("v1",), "CREATE", _PODS), _Rule("", ("v1",), "UPDATE", ("pods/ephemeralcontainers",)))
    owned = ("is-no-replica-set-of-a-controller", *updates)
    yield _access_webhook("pods", pods, ("is-no-mirror-pod", *updates), "object")
    yield _access_webhook("templates", tuple(_rules(_TEMPLATES)), owned, "object.spec.template")
    yield _access_webhook("cronjobs", tuple(_rules(_SCHEDULED)), updates, "object.spec.jobTemplate.spec.template")


def _access_webhook(name: str, rules: tuple[_Rule, ...], conditions: tuple[str, ...], place: str) -> _Webhook:
    requests = "!" + _requests_in(f"o{place.removeprefix('object')}.spec")
    no_daemon_set = _NO_DAEMON_SET_POD if name == "pods" else _NO_DAEMON_SET
    accesses = f"[{place}].exists(t,\n{_TAKES_DEVICES} ||\n({no_daemon_set}) &&\n{_SELECTS_GPU})"
    return _Webhook(f"takers-{name}", rules, conditions, requests, accesses)


def _rules(kinds: Iterable[WorkloadKind]) -> list[_Rule]:
    by_place: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind in kinds:
        by_place.setdefault((kind.group, kind.versions), []).append(kind.resource)
    return [
        _Rule(group, versions, "CREATE, UPDATE", tuple(sorted(resources)))
        for (group, versions), resources in sorted(by_place.items())
    ]


def _requests_in(place: str) -> str:
    return f"{_OBJECTS}.map(o, {place}).exists(spec,\n{_REQUESTS_ACCELERATOR})"


def _requests_in_custom(kinds: list[WorkloadKind]) -> str:
    """Return the condition that an object of ``kinds``, those of one group, requests an accelerator."""
    (wraps,) = {kind.wraps for kind in kinds}
    if wraps is not None:
        wrapped, resources = _specs(KINDS, "c.?template"), _resources(KINDS, "c.?template")
        states = "".join(f"{value}.hasValue() ||\n" for value in resources)
        # A wrapper with podSets may have pods anywhere.
        return (
            f"{_OBJECTS}.exists(o, {_optional('o', wraps)}.orValue([]).exists(c,\nc.?podSets.orValue([]).size() > 0 ||\n"
            f"{states}({wrapped}).exists(spec,\n{_REQUESTS_ACCELERATOR})))"
        )
    lists = [f"[optional.of({{'containers': [{{?'resources': {value}}}]}})]" for value in _resources(kinds, "o")]
    templates = _specs(kinds, "o")
    lists += [f"({templates})"] if templates else []
    return f"{_OBJECTS}.exists(o, {' + '.join(lists)}.exists(spec,\n{_REQUESTS_ACCELERATOR}))"


def _resources(kinds: Iterable[WorkloadKind], root: str) -> list[str]:
    """Return the optional CEL values of the resources that objects of ``kinds`` at ``root`` state without a container."""
    return [_optional(root, place.resources) for kind in kinds for place in kind.pod_sets if place.resources is not None]


def _specs(kinds: Iterable[WorkloadKind], root: str) -> str:
    """Return a CEL list of the pod specs (optional values) that objects of ``kinds`` at ``root`` may have."""
    paths = {(*place.template, "spec"): bool(place.role) for kind in kinds for place in kind.pod_sets if place.resources is None}
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


def _webhook_yaml(webhook: _Webhook, endpoint: str) -> str:
    reinvocation = "    reinvocationPolicy: IfNeeded\n" if endpoint == "mutate" else ""
    text = f"""\
  - name: {webhook.name}.{endpoint}.gpugate.io
    admissionReviewVersions: [v1]
    clientConfig:
      service:
        name: gpugate
        namespace: gpugate-system
        path: /{endpoint}
        port: 443
    failurePolicy: {webhook.failure_policy(endpoint)}
    matchPolicy: Equivalent
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: [gpugate-system, kube-system]
    objectSelector: {{}}
{reinvocation}    sideEffects: NoneOnDryRun
    timeoutSeconds: {webhook.timeout(endpoint)}
    rules:
"""
    for rule in webhook.rules:
        text += f"""\
      - apiGroups: [{rule.group or '""'}]
        apiVersions: [{", ".join(rule.versions)}]
        operations: [{rule.operations}]
        resources: [{", ".join(rule.resources)}]
        scope: Namespaced
"""
    text += "    matchConditions:\n"
    for name in webhook.conditions:
        if name == "is-no-replica-set-of-a-controller":
            text += "      # The Deployment controller identifies its ReplicaSets by their templates: those must not change.\n"
        text += _condition(name, _CONDITIONS[name])
    if not webhook.accesses:
        return text + _condition("asks-for-an-accelerator", webhook.requests)
    return text + _condition("asks-for-no-accelerator", webhook.requests) + _condition("gets-at-accelerators", webhook.accesses)


def _condition(name: str, expression: str) -> str:
    return f"      - name: {name}\n        expression: >-\n{textwrap.indent(expression, ' ' * 10)}\n"
