"""A rule: two pure functions, their parameters, and a declaration of all that they read, write and report."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.kinds import WorkloadKind
from gpugate.policies.workloads.workload import Workload

Mutate: TypeAlias = Callable[[Workload, Any, ClusterSnapshot], Iterable[Edit]]
Check: TypeAlias = Callable[[Workload, Any, ClusterSnapshot], Iterator[Finding]]
KindPredicate: TypeAlias = Callable[[WorkloadKind, Any], bool]

#: Fields of pod specs, containers and metadata that identify pods, their authors and what they request: every rule may read them.
COMMON_READS: Final = frozenset(
    {
        *("containers", "ephemeralContainers", "initContainers", "name", "os", "overhead"),
        *("resourceClaims", "resources", "restartPolicy"),
        *("generateName", "managedFields", "namespace", "ownerReferences", "resourceVersion", "uid"),
    }
)


def no_edits(_workload: Workload, _params: Params, _snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Return no edits: the ``mutate`` of a rule that only checks."""
    return ()


def no_findings(_workload: Workload, _params: Params, _snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Return no findings: the ``check`` of a rule that only edits."""
    return iter(())


def any_kind(_kind: WorkloadKind, _params: Params) -> bool:
    """Tell that a rule may refuse objects of every kind."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The declaration of a rule.

    Attributes:
        id: the name in policies, findings and annotations.
        title: one line on what the rule ensures.
        since: the version of gpugate that introduced the rule.
        params: the model of its parameters.
        reasons: the reasons of its findings.
        mutate: returns the edits of a workload.
        check: yields the findings on the edited workload. A bound rule gives them their levels.
        refuses: whether, with given parameters, it may refuse objects of a kind that request an accelerator.
        needs: plural resource names of the facts that the rule reads.
        reads: names of the fields of pod specs, their containers and metadata that change the result of the rule, besides those
            that identify pods and what they request (``COMMON_READS``). Fields of the kind around them count for every rule.
        reads_variables: names of the environment variables that the rule reads; a ``*`` at the end stands for any characters.
        reads_user_set: names of the fields of which the rule reads whether a user set them (``managedFields``).
        writes: names of the fields that its edits set or extend, or that contain them, in pod templates and the specs and
            metadata around them (``labels``, ``annotations``).
        writes_to_pods: the same of fields that it sets in pods alone, never in a template.
        after: ids of rules whose edits this rule builds on, so that they come before it.
        documentation: the docstring of its module, which becomes the reference.
        applied_at_pods: whether an edit withheld from a template is made on its pods at creation, so that checks may count on it.
        on_update: whether the rule edits a template that a user changed in an UPDATE, too.
        trigger_annotations: annotations that drive the rule. If an UPDATE changes one, the rule edits the template again.
        default_max_mode: the strongest mode of the rule if a policy sets the mode for all rules and does not name this one.
        default_mode_reason: why that is not Enforce, a sentence for the reference.
    """

    id: str
    title: str
    since: str
    params: type[Params]
    reasons: Mapping[str, Reason] = field(default_factory=dict, hash=False)
    mutate: Mutate = no_edits
    check: Check = no_findings
    refuses: KindPredicate = any_kind
    needs: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    reads_variables: frozenset[str] = frozenset()
    reads_user_set: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    writes_to_pods: frozenset[str] = frozenset()
    after: tuple[str, ...] = ()
    documentation: str = ""
    on_update: bool = True
    applied_at_pods: bool = False
    trigger_annotations: frozenset[str] = frozenset()
    default_max_mode: Mode = Mode.ENFORCE
    default_mode_reason: str = ""
