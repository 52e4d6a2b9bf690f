"""Compare the two objects of an UPDATE.

The differences decide what gpugate does. A template counts as changed if it differs from the old one after the recorded edits are
made again. Of the rows that apply, the first decides.

Edits, by the mutating webhook:

| UPDATE | recorded edits made again | rules that edit |
|---|---|---|
| changes no spec, label or annotation | none | none |
| is of a Pod, of a subresource, or of an object that Kueue compares with another | none | none |
| is of a kind with immutable templates | all | none |
| suspends, resumes or places a workload for Kueue, with the same requests | all | none |
| changes an annotation that a rule reads | all but pod specs and these annotations | those with `on_update` |
| changes resources or placement in a template | all but the pod spec of this template | those with `on_update` |
| changes another field of a template | all | those with `on_update` |
| leaves the templates unchanged | all | none |

Findings that would deny:

| UPDATE | findings |
|---|---|
| changes no spec, label or annotation | are not looked for |
| changes an immutable field | deny, also those that a new object would get |
| toggles suspend with the same queue, the same requests and no more pods | warn |
| leaves a template, its queue and its annotations unchanged, with no more pods | warn, if about this template |
| any other | deny if new or worse than before |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, sequence
from gpugate.policies.kube.managers import with_kueue_marks
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.patch import PatchBuilder
from gpugate.policies.workloads.metadata import is_copied, queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.recorded_edits import ANNOTATION, Effort, reapply_edit, recorded
from gpugate.policies.workloads.workload import Workload

_OWN_PREFIX: Final = "gpugate.io/"
#: Fields of the pods of a suspended job that may change; so may, behind a feature gate, the resources of its containers.
_MUTABLE_WHILE_SUSPENDED: Final = frozenset({"affinity", "nodeSelector", "schedulingGates", "tolerations"})
_CONTAINERS: Final = ("initContainers", "containers")
#: Fields of a pod spec that set what the pods request of a node.
_REQUESTS: Final = ("containers", "initContainers", "resources", "overhead", "volumes")
#: Fields from which rules derive edits; after a change of another field (an image, a command) the edits stay right.
_RULE_INPUTS: Final = (
    *("affinity", "hostIPC", "nodeSelector", "os", "overhead", "resourceClaims", "resources", "tolerations"),
    *("topologySpreadConstraints", "volumes"),
)
_RULE_INPUTS_OF_CONTAINER: Final = ("name", "resources", "restartPolicy", "volumeMounts")
_QUANTITY_MAPS: Final = frozenset({"limits", "overhead", "requests"})
_QUANTITIES: Final = frozenset({"divisor", "sizeLimit"})
#: Fields whose empty, false or zero value equals an absent one: Go drops them on encoding (``k8s.io/api`` ``core/v1``, no
#: pointer and ``omitempty``), or writes them empty if absent.
_OMITTED_IF_EMPTY: Final = frozenset(
    {
        *("args", "command", "containers", "env", "envFrom", "ephemeralContainers", "hostAliases", "imagePullSecrets"),
        *("initContainers", "ports", "readinessGates", "resourceClaims", "schedulingGates", "tolerations"),
        *("topologySpreadConstraints", "volumeDevices", "volumeMounts", "volumes"),
        *("add", "claims", "drop", "items", "matchExpressions", "matchFields", "values"),
        *("annotations", "labels", "limits", "matchLabels", "metadata", "nodeSelector", "overhead", "requests", "resources"),
        *("creationTimestamp", "effect", "hostIP", "hostname", "imagePullPolicy", "medium", "name", "operator", "subPath"),
        *("terminationMessagePath", "terminationMessagePolicy", "value", "workingDir"),
        *("failureThreshold", "hostPort", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"),
        *("hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"),
    }
)


class Transition:
    """The old object of an UPDATE, and ``after``, the object under review; its edits may change the results of comparisons."""

    def __init__(
        self, after: Workload, old: Object, open_object: Callable[[Object], Workload], read: Callable[[Workload], None]
    ) -> None:
        self.after = after
        self.old = old
        self._open = open_object
        self._read = read
        #: The old object as a workload, if it is opened already; its containers may be unread.
        self.opened: Workload | None = None

    @cached_property
    def before(self) -> Workload:
        """The old object as a workload; a field of a wrong type raises a ``MalformedError``."""
        if self.opened is None:
            return self._open(self.old)
        self._read(self.opened)
        return self.opened

    @cached_property
    def recorded(self) -> list[list[Any]]:
        """The edits that the old object records (:func:`gpugate.policies.workloads.recorded_edits.recorded`)."""
        return recorded(self.old)

    @cached_property
    def recorded_values(self) -> dict[Path, list[Any]]:
        """The values that the old object's record adds or replaces, by path."""
        values: dict[Path, list[Any]] = {}
        for op, path, *written in self.recorded:
            if op != "remove":
                values.setdefault(from_pointer(path), []).append(written[0])
        return values

    @cached_property
    def _pod_sets_before(self) -> dict[Path, PodSet]:
        return {pods.path: pods for pods in self.before.pod_sets}

    def pods_before(self, pods: PodSet) -> PodSet | None:
        """The pod set at the path of ``pods`` in the old object; None if there was none."""
        return self._pod_sets_before.get(pods.path)

    def with_recorded_edits(self) -> Transition:
        """The transition to a copy of the new object with all recorded edits reapplied: the changes of the user."""
        if not self.recorded:
            return self
        draft = PatchBuilder(clone(self.after.root))
        effort = Effort()
        for op, path, *values in self.recorded:
            reapply_edit(draft, self.old, op, from_pointer(path), values, effort)
        intended = Transition(self._open(draft.root), self.old, self._open, self._read)
        intended.before, intended.recorded = self.before, self.recorded
        return intended

    @property
    def metadata_only(self) -> bool:
        """Whether spec, labels and annotations are the same."""
        if self.after.root.get("spec") != self.old.get("spec"):
            return False
        now, was = self.after.metadata(), self.old.get("metadata")
        return type(was) is dict and all((now.get(key) or {}) == (was.get(key) or {}) for key in ("labels", "annotations"))

    @property
    def suspended(self) -> bool:
        """Whether the new object is suspended: its pods stop as a whole."""
        return self.after.kind.is_suspended(self.after.root)

    @property
    def started_or_stopped(self) -> bool:
        """Whether ``suspend`` changes; for a pod, whether it loses a scheduling gate."""
        if self.after.is_pod():
            spec = self.old.get("spec")
            old = sequence(spec, "schedulingGates", ("spec",)) if type(spec) is dict else []
            return len(sequence(self.after.pod_sets[0].spec, "schedulingGates", ("spec",))) < len(old)
        return self.suspended != self.after.kind.is_suspended(self.old)

    @property
    def suspend_toggled(self) -> bool:
        """Whether an admitted workload starts or stops in the same queue, with no more pods and the same requests.

        Kueue starts a Job, and ungates a pod, with the labels of the chosen flavor as node selector, and removes these when it
        stops it. If such an UPDATE were denied, Kueue would repeat it and hold the quota meanwhile.
        """
        if self.queue_changed or not self.started_or_stopped:
            return False
        return all(not self.requests_changed(pods) and self.scaled(pods) <= 0 for pods in self.after.pod_sets)

    @property
    def placed_by_kueue(self) -> bool:
        """Whether Kueue may make this UPDATE: it changes no requests, and suspend changes or the workload was in a queue.

        Kueue starts and stops some kinds by node selectors and tolerations of its flavors in the template. It compares their
        containers with its Workload, and stops the workload for good if they differ (v0.15.0 ``pkg/util/equality/podset.go``).
        """
        if self.after.kind.suspend is None or not (self.started_or_stopped or queue_label(self.before)):
            return False
        return not any(map(self.requests_changed, self.after.pod_sets))

    @property
    def queue_changed(self) -> bool:
        """Whether the queue name that Kueue reads changes."""
        return queue_label(self.after) != queue_label(self.before)

    def scaled(self, pods: PodSet) -> int:
        """The number of pods that ``pods`` has more than before; negative if fewer."""
        before = self.pods_before(pods)
        return (pods.count or 0) - ((before.count or 0) if before is not None else 0)

    def template_changed(self, pods: PodSet) -> bool:
        """Whether the template of ``pods`` semantically differs from the old one, apart from marks that Kueue adds again."""
        before = self.pods_before(pods)
        if before is None:
            return True
        return pods.root != before.root and not semantically_equal(with_kueue_marks(pods.root, before.root), before.root)

    def requests_changed(self, pods: PodSet) -> bool:
        """Whether ``pods`` is new, or differs in a field that sets what its pods request of a node."""
        before = self.pods_before(pods)
        return before is None or not semantically_equal(_fields(pods.spec, _REQUESTS), _fields(before.spec, _REQUESTS))

    def rule_inputs_changed(self, pods: PodSet) -> bool:
        """Whether the template of ``pods`` is new, or differs in resources or placement, from which rules derive edits."""
        before = self.pods_before(pods)
        return before is None or not semantically_equal(_rule_inputs(pods.root), _rule_inputs(before.root))

    def annotations_changed(self, keys: Iterable[str]) -> bool:
        """Whether an annotation of ``keys`` changes in the object or a template; copies that gpugate wrote do not count."""
        return any(
            self.after.annotations().get(key) != lookup(self.old, ("metadata", "annotations", key))
            or any(self._template_annotation_changed(pods, key) for pods in self.after.pod_sets)
            for key in keys
        )

    def _template_annotation_changed(self, pods: PodSet, key: str) -> bool:
        now, was = pods.annotations().get(key), lookup(self.old, pods.meta("annotations", key))
        return now != was and not (now is None and type(was) is str and is_copied(self.after, pods, key, was))

    @property
    def own_annotations_changed(self) -> bool:
        """Whether an annotation of the object with gpugate's prefix changes, apart from the record of edits."""
        now, was = (
            {key: value for key, value in workload.annotations().items() if key.startswith(_OWN_PREFIX) and key != ANNOTATION}
            for workload in (self.after, self.before)
        )
        return now != was

    @property
    def immutable_changed(self) -> bool:
        """Whether a field changes whose changes the API rejects."""
        kind, root = self.after.kind, self.after.root
        if self.after.subresource:
            return False
        if any(lookup(root, ("spec", name)) != lookup(self.old, ("spec", name)) for name in kind.immutable):
            return True
        if kind.template_mutable or self.after.is_pod():
            return False
        # Kueue stops a job and removes its node selectors in one UPDATE.
        suspended = self.suspended or kind.is_suspended(self.old)
        for pods in self.after.pod_sets:
            was, now = lookup(self.old, pods.field()), pods.spec
            if suspended:
                was, now = _immutable_while_suspended(was), _immutable_while_suspended(now)
            # Operators also compare specs after decoding them into their types.
            if was is not None and not semantically_equal(was, now):
                return True
        return False


def _fields(holder: Object, names: Iterable[str]) -> Object:
    return {name: holder.get(name) for name in names}


def _rule_inputs(template: Object) -> Object:
    spec = template.get("spec")
    if type(spec) is not dict:
        return {}
    inputs = _fields(spec, _RULE_INPUTS)
    for field in _CONTAINERS:
        containers = spec.get(field) or ()
        inputs[field] = [_fields(container, _RULE_INPUTS_OF_CONTAINER) for container in containers if type(container) is dict]
    return inputs


def _immutable_while_suspended(spec: Any) -> Any:  # noqa: ANN401 - any JSON value
    if type(spec) is not dict:
        return spec
    immutable = {key: value for key, value in spec.items() if key not in _MUTABLE_WHILE_SUSPENDED}
    for field in _CONTAINERS:
        if type(immutable.get(field)) is list:
            immutable[field] = [
                {key: value for key, value in container.items() if key != "resources"} if type(container) is dict else container
                for container in immutable[field]
            ]
    return immutable


def semantically_equal(left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether two templates, or parts of them, are equal apart from quantity formats and Go zero values.

    A client that decodes a custom resource and writes it back, such as Kueue's webhooks and operators, reformats quantities (``1``
    becomes ``"1"``, ``1024Mi`` becomes ``1Gi``), adds empty maps, and drops empty and false values (a variable's ``value: ""``, a
    mount's ``readOnly: false``). An apply from Git sends the original form again.
    """
    if left == right:
        return True
    if type(left) is dict and type(right) is dict:
        return all(_fields_equal(key, left.get(key), right.get(key)) for key in left.keys() | right.keys())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(semantically_equal, left, right))
    return False


def _fields_equal(key: Any, left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    if left == right or (key in _OMITTED_IF_EMPTY and not left and not right):
        return True
    if key in _QUANTITIES:
        # An absent divisor equals zero.
        default = "0" if key == "divisor" else None
        return _quantities_equal(default if left is None else left, default if right is None else right)
    if key in _QUANTITY_MAPS and type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(_quantities_equal(left[name], right[name]) for name in left)
    return semantically_equal(left, right)


def _quantities_equal(left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return bool(left == right) or exact(left) == exact(right)
    except QuantityError:
        return False
