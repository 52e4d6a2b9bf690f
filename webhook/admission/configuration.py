"""The webhook configurations as YAML: which objects the apiserver sends to the door, written from the table of kinds.

Every field that the apiserver would default is written out, so that a GitOps tool finds what it states. The conditions are CEL
(Kubernetes ``matchConditions``): an object is sent only where it asks for an accelerator, or gets at one without asking, so no
other waits for gpugate.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.kube.accelerators import LOOKS_LIKE
from gpugate.policies.kube.fields import Path
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind
from gpugate.webhook.admission.match_conditions import taker_condition

_ASKS: Final = """\
spec.?resourceClaims.orValue([]).size() > 0 ||
[spec.?containers, spec.?initContainers].exists(list, list.orValue([]).exists(container,
[container.?resources.?limits, container.?resources.?requests].exists(amounts, amounts.orValue({}).exists(name,
name.contains('/') && amounts.value()[name] != '0' && !name.endsWith('_monitoring') &&
name.matches('(?i)@LOOKS_LIKE@')))))""".replace("@LOOKS_LIKE@", LOOKS_LIKE)
_OBJECTS: Final = "[object, oldObject].filter(o, o != null)"
#: Kinds of Kubernetes itself, whose objects the conditions see typed: pods, what keeps a template, and what keeps a job's.
_PODS: Final = tuple(kind.resource for kind in KINDS if kind.is_pod)
_TEMPLATES: Final = [kind for kind in KINDS if kind.is_built_in and not kind.is_pod and not kind.scheduled]
(_REVISION,) = (kind for kind in KINDS if kind.is_revision_of_owner)
_SCHEDULED: Final = [kind for kind in KINDS if kind.is_built_in and kind.scheduled]
_HEADS: Final = {
    "mutate": """\
# Written by `make docs` from policies/workloads/kinds and webhook/admission/configuration.py: change it there.
#
# Rewrites objects that ask for an accelerator. Where gpugate can't answer they pass as they are: the validating webhooks,
# which see the final object, turn away what must not run so.
#
# The name sorts before Kueue's, so that Kueue sees the queue names that gpugate puts in.
""",
    "validate": """\
# Written by `make docs` from policies/workloads/kinds and webhook/admission/configuration.py: change it there.
#
# Judges the final state of objects that ask for an accelerator; where gpugate can't answer, these and no others are refused.
# The webhooks called takers-... see objects that ask for none, and take devices or go to accelerator nodes all the same. Where
# gpugate can't answer these pass: device plugins, exporters and the GPU operator are such objects (docs/decisions/0019).
# No rule names DELETE or a status: nothing that ends, cleans up or reports ever waits for gpugate.
""",
}
_REMARK: Final = """\
#
# sideEffects: a refusal may create an Event, and nothing else is written; a dry run creates none (docs/operate/observing.md).
#
# Every field that the apiserver would default is written out, and clientConfig.caBundle is left out: what a GitOps tool
# states here is what it finds again, while the bundle belongs to whoever issues the certificate. matchConditions see typed
# objects: quantities in their shortest form (zero is '0'), absent fields absent; those of custom resources are as written.
"""
_CONDITIONS: Final = {
    "is-no-mirror-pod": "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))",
    "is-no-replica-set-of-a-controller": (
        f"request.resource.resource != '{_REVISION.resource}' ||\n"
        "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
    ),
    "is-not-being-deleted": "!has(object.metadata.deletionTimestamp)",
    "changes-more-than-finalizers": (
        "oldObject == null || object.spec != oldObject.spec ||\n"
        "object.metadata.?labels != oldObject.metadata.?labels ||\n"
        "object.metadata.?annotations != oldObject.metadata.?annotations"
    ),
}


class _Rule(NamedTuple):
    group: str
    versions: tuple[str, ...]
    operations: str
    resources: tuple[str, ...]


class _Webhook(NamedTuple):
    """One webhook.

    Attributes:
        name: the first part of its name.
        rules: what the apiserver matches by group and resource.
        conditions: names of conditions that keep out what nobody needs to judge.
        asks: the condition that an object asks for an accelerator.
        takes: the condition that one does not, and gets at accelerators all the same; empty for those that ask.
    """

    name: str
    rules: tuple[_Rule, ...]
    conditions: tuple[str, ...]
    asks: str
    takes: str = ""

    def failure_policy(self, door: str) -> str:
        """What becomes of an object that gpugate gives no answer for."""
        return "Ignore" if door == "mutate" or self.takes else "Fail"

    def timeout(self, door: str) -> int:
        """How many seconds the apiserver waits."""
        return 2 if self.takes else 3 if door == "mutate" else 5


def configuration(door: str) -> str:
    """The configuration for ``door`` (``mutate`` or ``validate``) as YAML."""
    kind, name = {
        "mutate": ("MutatingWebhookConfiguration", "gpugate-mutating"),
        "validate": ("ValidatingWebhookConfiguration", "gpugate-validating"),
    }[door]
    head = f"""\
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: gpugate
webhooks:
"""
    return _HEADS[door] + _REMARK + head + "".join(_written(one, door) for one in _webhooks(door))


def _webhooks(door: str) -> Iterable[_Webhook]:
    updates = ("is-not-being-deleted", "changes-more-than-finalizers")
    rules = [_Rule("", ("v1",), "CREATE" if door == "mutate" else "CREATE, UPDATE", _PODS)]
    if door == "validate":
        rules.append(_Rule("", ("v1",), "UPDATE", ("pods/ephemeralcontainers", "pods/resize")))
    mirror = ("is-no-mirror-pod",) if door == "mutate" else ("is-no-mirror-pod", *updates)
    yield _Webhook("pods", tuple(rules), mirror, _asks_of("o.spec"))
    yield _Webhook(
        "templates",
        tuple(_rules(_TEMPLATES)),
        ("is-no-replica-set-of-a-controller", *updates),
        _asks_of("o.spec.template.spec"),
    )
    yield _Webhook("cronjobs", tuple(_rules(_SCHEDULED)), updates, _asks_of("o.spec.jobTemplate.spec.template.spec"))
    custom = [kind for kind in KINDS if not kind.is_built_in]
    for group in dict.fromkeys(kind.group for kind in custom):
        kinds = [kind for kind in custom if kind.group == group]
        yield _Webhook(_name_of(group), tuple(_rules(kinds)), updates, _asks_of_custom(kinds))
    if door == "validate":
        yield from _takers(updates)


def _takers(updates: tuple[str, ...]) -> Iterable[_Webhook]:
    """The webhooks for objects that ask for nothing. Pods of every other kind pass the first of them when they are made."""
    pods = (
        _Rule("", ("v1",), "CREATE", _PODS),
        _Rule("", ("v1",), "UPDATE", ("pods/ephemeralcontainers",)),
    )
    owned = ("is-no-replica-set-of-a-controller", *updates)
    yield _taker("pods", pods, ("is-no-mirror-pod", *updates), "object")
    yield _taker("templates", tuple(_rules(_TEMPLATES)), owned, "object.spec.template")
    yield _taker("cronjobs", tuple(_rules(_SCHEDULED)), updates, "object.spec.jobTemplate.spec.template")


def _taker(name: str, rules: tuple[_Rule, ...], conditions: tuple[str, ...], place: str) -> _Webhook:
    asks = "!" + _asks_of(f"o{place.removeprefix('object')}.spec")
    return _Webhook(f"takers-{name}", rules, conditions, asks, taker_condition(place, is_pod=name == "pods"))


def _name_of(group: str) -> str:
    return group.replace(".", "-")


def _rules(kinds: Iterable[WorkloadKind]) -> list[_Rule]:
    by_place: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind in kinds:
        by_place.setdefault((kind.group, kind.versions), []).append(kind.resource)
    return [_Rule(group, versions, "CREATE, UPDATE", tuple(sorted(found))) for (group, versions), found in sorted(by_place.items())]


def _asks_of(place: str) -> str:
    return f"{_OBJECTS}.map(o, {place}).exists(spec,\n{_ASKS})"


def _asks_of_custom(kinds: list[WorkloadKind]) -> str:
    """Return the condition that an object of ``kinds``, those of one group, requests an accelerator."""
    (wraps,) = {kind.wraps for kind in kinds}
    if wraps is not None:
        wrapped, resources = _specs(KINDS, "c.?template"), _resources(KINDS, "c.?template")
        states = "".join(f"{found}.hasValue() ||\n" for found in resources)
        # Where the wrapper itself says where pods are, they may be anywhere.
        return (
            f"{_OBJECTS}.exists(o, {_optional('o', wraps)}.orValue([]).exists(c,\nc.?podSets.orValue([]).size() > 0 ||\n"
            f"{states}({wrapped}).exists(spec,\n{_ASKS})))"
        )
    lists = [f"[optional.of({{'containers': [{{?'resources': {found}}}]}})]" for found in _resources(kinds, "o")]
    templates = _specs(kinds, "o")
    lists += [f"({templates})"] if templates else []
    return f"{_OBJECTS}.exists(o, {' + '.join(lists)}.exists(spec,\n{_ASKS}))"


def _resources(kinds: Iterable[WorkloadKind], root: str) -> list[str]:
    """Return the optional CEL values of the resources that objects of ``kinds`` at ``root`` state without a container."""
    return [_optional(root, place.resources) for kind in kinds for place in kind.pod_sets if place.resources is not None]


def _specs(kinds: Iterable[WorkloadKind], root: str) -> str:
    """A CEL list of the pod specs (optional values) that objects of ``kinds`` at ``root`` may have."""
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


def _written(one: _Webhook, door: str) -> str:
    reinvocation = "    reinvocationPolicy: IfNeeded\n" if door == "mutate" else ""
    text = f"""\
  - name: {one.name}.{door}.gpugate.io
    admissionReviewVersions: [v1]
    clientConfig:
      service:
        name: gpugate
        namespace: gpugate-system
        path: /{door}
        port: 443
    failurePolicy: {one.failure_policy(door)}
    matchPolicy: Equivalent
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: [gpugate-system, kube-system]
    objectSelector: {{}}
{reinvocation}    sideEffects: NoneOnDryRun
    timeoutSeconds: {one.timeout(door)}
    rules:
"""
    for rule in one.rules:
        text += f"""\
      - apiGroups: [{rule.group or '""'}]
        apiVersions: [{", ".join(rule.versions)}]
        operations: [{rule.operations}]
        resources: [{", ".join(rule.resources)}]
        scope: Namespaced
"""
    text += "    matchConditions:\n"
    for name in one.conditions:
        if name == "is-no-replica-set-of-a-controller":
            text += "      # The Deployment controller knows its ReplicaSets by their templates: those stay as it made them.\n"
        text += _condition(name, _CONDITIONS[name])
    if not one.takes:
        return text + _condition("asks-for-an-accelerator", one.asks)
    return text + _condition("asks-for-no-accelerator", one.asks) + _condition("gets-at-accelerators", one.takes)


def _condition(name: str, expression: str) -> str:
    return f"      - name: {name}\n        expression: >-\n{textwrap.indent(expression, ' ' * 10)}\n"
