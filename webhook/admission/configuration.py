"""Write the webhook configurations as YAML, from the table of workload kinds.

Every field that the apiserver would default is written out, so that GitOps tools see no difference. The ``matchConditions``
are CEL: the apiserver sends only objects that request an accelerator, or may access one without a request.
"""

import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.workloads.kinds import KINDS, WorkloadKind
from gpugate.webhook.admission.conditions import EXCLUDING, accesses_in, requests_in, requests_in_custom

#: Kinds of Kubernetes itself, whose objects are typed in conditions: pods, kinds with a pod template, and scheduled kinds.
_PODS: Final = tuple(kind.resource for kind in KINDS if kind.is_pod)
_TEMPLATES: Final = [kind for kind in KINDS if kind.is_built_in and not kind.is_pod and not kind.scheduled]
_SCHEDULED: Final = [kind for kind in KINDS if kind.is_built_in and kind.scheduled]
_HEADS: Final = {
    "mutate": """\
# Written by `make docs` from policies/workloads/kinds, configuration.py and conditions.py in webhook/admission: change it there.
#
# Changes objects that request an accelerator. Without an answer of gpugate they pass unchanged: the validating webhooks
# check the final object.
#
# The name sorts before Kueue's, so that Kueue sees the queue names that gpugate puts in.
""",
    "validate": """\
# Written by `make docs` from policies/workloads/kinds, configuration.py and conditions.py in webhook/admission: change it there.
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
    yield _Webhook("pods", tuple(rules), mirror, requests_in("o.spec"))
    yield _Webhook(
        "templates",
        tuple(_rules(_TEMPLATES)),
        ("is-no-replica-set-of-a-controller", *updates),
        requests_in("o.spec.template.spec"),
    )
    yield _Webhook("cronjobs", tuple(_rules(_SCHEDULED)), updates, requests_in("o.spec.jobTemplate.spec.template.spec"))
    custom = [kind for kind in KINDS if not kind.is_built_in]
    for group in dict.fromkeys(kind.group for kind in custom):
        kinds = [kind for kind in custom if kind.group == group]
        yield _Webhook(group.replace(".", "-"), tuple(_rules(kinds)), updates, requests_in_custom(kinds))
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
    requests = "!" + requests_in(f"o{place.removeprefix('object')}.spec")
    return _Webhook(f"takers-{name}", rules, conditions, requests, accesses_in(place, is_pod=name == "pods"))


def _rules(kinds: Iterable[WorkloadKind]) -> list[_Rule]:
    by_place: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind in kinds:
        by_place.setdefault((kind.group, kind.versions), []).append(kind.resource)
    return [
        _Rule(group, versions, "CREATE, UPDATE", tuple(sorted(resources)))
        for (group, versions), resources in sorted(by_place.items())
    ]


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
        text += _condition(name, EXCLUDING[name])
    if not webhook.accesses:
        return text + _condition("asks-for-an-accelerator", webhook.requests)
    return text + _condition("asks-for-no-accelerator", webhook.requests) + _condition("gets-at-accelerators", webhook.accesses)


def _condition(name: str, expression: str) -> str:
    return f"      - name: {name}\n        expression: >-\n{textwrap.indent(expression, ' ' * 10)}\n"
