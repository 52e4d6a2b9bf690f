"""Write the webhook configurations as YAML, from the table of workload kinds and the policies in force.

Every field that the apiserver would default is written out, so that GitOps tools see no difference. The ``matchConditions``
are CEL: the apiserver sends only objects that request an accelerator, or may access one without a request.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from gpugate.policies.policy.failing_closed import UNREVIEWED_NAMESPACES, FailingClosed
from gpugate.policies.policy.namespace_regions import EVERYWHERE, NAME_LABEL, Region, Requirement
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind
from gpugate.webhook.admission.conditions import EXCLUDING, accesses_in, requests_in, requests_in_custom
from gpugate.webhook.files.yaml import AMBIGUOUS

#: Kinds of Kubernetes itself, whose objects are typed in conditions: pods, kinds with a pod template, and scheduled kinds.
_PODS: Final = [kind for kind in KINDS if kind.is_pod]
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
# Checks the final state of objects that request an accelerator. Without an answer of gpugate they are refused where a policy
# refuses objects of their kind, and pass everywhere else (docs/operate/failure-policy.md).
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


#: What the validating configuration is for, after its general head.
_OF_POLICIES: Final = "#\n# It holds for these policies: {policies}.\n"
_LEFT_OPEN: Final = """\
# They need more label selectors than there may be webhooks: some namespaces in which they refuse objects fail open. The status
# of the policies lists these.
"""
#: Requirement that every webhook has: the namespaces whose objects it gets.
_REVIEWED: Final = Requirement(NAME_LABEL, "NotIn", UNREVIEWED_NAMESPACES)


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
        region: the namespaces whose objects it gets; ``inside``: whether it fails closed.
    """

    name: str
    rules: tuple[_Rule, ...]
    conditions: tuple[str, ...]
    requests: str
    accesses: str = ""
    region: Region = EVERYWHERE

    @property
    def failure_policy(self) -> str:
        """The failurePolicy: what happens to an object without an answer of gpugate."""
        return "Fail" if self.region.inside else "Ignore"

    @property
    def timeout(self) -> int:
        """The timeout of the apiserver in seconds. An object waits no longer for an answer that it does not need."""
        return 2 if self.accesses else 5 if self.region.inside else 3


def configuration(endpoint: str, failing: FailingClosed) -> str:
    """Return the configuration of ``endpoint`` (``mutate`` or ``validate``) as YAML, for the policies of ``failing``.

    The mutating webhooks are the same for all policies.
    """
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
    named = ", ".join(policy.name for policy in failing.policies.policies)
    of_policies = _OF_POLICIES.format(policies=named) + ("" if failing.is_exact else _LEFT_OPEN)
    text = _HEADS[endpoint] + (of_policies if endpoint == "validate" else "") + _REMARK + head
    return text + "".join(_webhook_yaml(webhook, endpoint) for webhook in _webhooks(endpoint, failing))


def _webhooks(endpoint: str, failing: FailingClosed) -> Iterable[_Webhook]:
    updates = ("is-not-being-deleted", "changes-more-than-finalizers")
    mirror = ("is-no-mirror-pod",) if endpoint == "mutate" else ("is-no-mirror-pod", *updates)
    groups = [
        ("pods", _PODS, mirror, requests_in("o.spec")),
        ("templates", _TEMPLATES, ("is-no-replica-set-of-a-controller", *updates), requests_in("o.spec.template.spec")),
        ("cronjobs", _SCHEDULED, updates, requests_in("o.spec.jobTemplate.spec.template.spec")),
    ]
    custom = [kind for kind in KINDS if not kind.is_built_in]
    for group in dict.fromkeys(kind.group for kind in custom):
        kinds = [kind for kind in custom if kind.group == group]
        groups.append((group.replace(".", "-"), kinds, updates, requests_in_custom(kinds)))
    for name, kinds, conditions, requests in groups:
        if endpoint == "mutate":
            yield _Webhook(name, tuple(_rules(kinds, endpoint)), conditions, requests)
            continue
        for suffix, region, part in _regions(kinds, failing):
            yield _Webhook(name + suffix, tuple(_rules(part, endpoint)), conditions, requests, region=region)
    if endpoint == "validate":
        yield from _access_webhooks(updates)


def _regions(kinds: Sequence[WorkloadKind], failing: FailingClosed) -> Iterator[tuple[str, Region, list[WorkloadKind]]]:
    """Yield the regions of ``kinds`` with the kinds that have them: each namespace is in one region of each kind.

    The first is the end of the webhook's name, empty if there is only one.
    """
    together: dict[Region, list[WorkloadKind]] = {}
    for kind in kinds:
        for region in failing.regions(kind):
            together.setdefault(region, []).append(kind)
    numbers = {True: count(1), False: count(1)}
    for region, part in together.items():
        suffix = f"-{'fail' if region.inside else 'ignore'}-{next(numbers[region.inside])}" if len(together) > 1 else ""
        yield suffix, region, part


def _access_webhooks(updates: tuple[str, ...]) -> Iterable[_Webhook]:
    """Yield the webhooks for objects that request nothing. Pods of all other kinds pass the first one at creation."""
    (pod,) = _PODS
    pods = (_Rule("", pod.versions, "CREATE", (pod.resource,)), _Rule("", pod.versions, "UPDATE", ("pods/ephemeralcontainers",)))
    owned = ("is-no-replica-set-of-a-controller", *updates)
    yield _access_webhook("pods", pods, ("is-no-mirror-pod", *updates), "object")
    yield _access_webhook("templates", tuple(_rules(_TEMPLATES, "validate")), owned, "object.spec.template")
    yield _access_webhook("cronjobs", tuple(_rules(_SCHEDULED, "validate")), updates, "object.spec.jobTemplate.spec.template")


def _access_webhook(name: str, rules: tuple[_Rule, ...], conditions: tuple[str, ...], place: str) -> _Webhook:
    requests = "!" + requests_in(f"o{place.removeprefix('object')}.spec")
    return _Webhook(f"takers-{name}", rules, conditions, requests, accesses_in(place, is_pod=name == "pods"))


def _rules(kinds: Iterable[WorkloadKind], endpoint: str) -> Iterator[_Rule]:
    by_place: dict[tuple[str, tuple[str, ...]], list[WorkloadKind]] = {}
    for kind in kinds:
        by_place.setdefault((kind.group, kind.versions), []).append(kind)
    for (group, versions), together in sorted(by_place.items()):
        # Nothing of a pod that gpugate could set may change later.
        created_only = endpoint == "mutate" and any(kind.is_pod for kind in together)
        resources = tuple(sorted(kind.resource for kind in together))
        yield _Rule(group, versions, "CREATE" if created_only else "CREATE, UPDATE", resources)
        if endpoint == "validate" and any(kind.is_pod for kind in together):
            yield _Rule(group, versions, "UPDATE", ("pods/ephemeralcontainers", "pods/resize"))


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
    failurePolicy: {webhook.failure_policy}
    matchPolicy: Equivalent
    namespaceSelector:
      matchExpressions:
{"".join(map(_requirement_yaml, (_REVIEWED, *webhook.region.requirements)))}\
    objectSelector: {{}}
{reinvocation}    sideEffects: NoneOnDryRun
    timeoutSeconds: {webhook.timeout}
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


def _requirement_yaml(requirement: Requirement) -> str:
    values = f"          values: [{', '.join(map(_scalar, requirement.values))}]\n" if requirement.values else ""
    return f"        - key: {_scalar(requirement.key)}\n          operator: {requirement.operator}\n{values}"


def _scalar(text: str) -> str:
    """Return the key or value of a label in YAML."""
    return f'"{text}"' if AMBIGUOUS.fullmatch(text) else text


def _condition(name: str, expression: str) -> str:
    return f"      - name: {name}\n        expression: >-\n{textwrap.indent(expression, ' ' * 10)}\n"
