"""What becomes of a Job whose pod fails: failure policies, and containers that are started again."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, Path, integer_at, lookup
from gpugate.policies.kube.managers import is_user_set
from gpugate.policies.patch import Edit
from gpugate.policies.rules.lifecycle.jobs.job_fields import JobSpec
from gpugate.policies.workloads.pod_set import PodSet

_DISRUPTED: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def failure_rules(codes: Sequence[int], action: str, *, disruptions: bool) -> list[Object]:
    """The rules of a failure policy: evictions are ignored before anything else, ``codes`` lead to ``action``."""
    rules: list[Object] = [_DISRUPTED] if disruptions else []
    if codes:
        rules.append({"action": action, "onExitCodes": {"operator": "In", "values": sorted(codes)}})
    return rules


def give_failure_policy(pods: PodSet, spec: Path, root: Object, rules: list[Object]) -> Iterator[Edit]:
    """Write the failure policy of the Job whose spec is at ``spec``, where the API takes one and none is stated."""
    if not _takes_failure_policy(pods, spec, root):
        return
    group = f"failure-policy {spec}"
    place = (*spec, "podReplacementPolicy")
    if lookup(root, place) not in (None, "Failed"):
        # The API filled it in, and takes nothing else beside a failure policy.
        yield Edit("set", place, "Failed", "podReplacementPolicy Failed", group, defaulted=is_user_set(root, place) is False)
    yield Edit("set", (*spec, "podFailurePolicy"), {"rules": rules}, "podFailurePolicy", group)


def _takes_failure_policy(pods: PodSet, spec: Path, root: Object) -> bool:
    """Whether a failure policy may stand beside what the Job states (``ValidateJobSpec`` of Kubernetes)."""
    if lookup(root, (*spec, "podFailurePolicy")) is not None or pods.spec.get("restartPolicy") != "Never":
        return False
    replaced = lookup(root, (*spec, "podReplacementPolicy"))
    return replaced in (None, "Failed") or is_user_set(root, (*spec, "podReplacementPolicy")) is not True


def check_restarts(part: JobSpec, pods: PodSet, spec: Path, root: Object) -> Iterator[Finding]:
    """Containers of a gang that are started again inside their pods."""
    written = pods.spec.get("restartPolicy")
    policy = part.kind.default_restart_policy if written is None else written
    # A Job without retries fails at the first restart of a container.
    if policy != "OnFailure" or integer_at(root, (*spec, "backoffLimit")) == 0:
        return
    yield Finding(
        "RestartsInPlace",
        pods.field("restartPolicy"),
        ("restartPolicy OnFailure" if written else f"{part.kind.kind} makes the missing restartPolicy OnFailure, which")
        + " starts a container of the gang again inside its pod, while the others wait for it in the operation that it left",
        "Write restartPolicy: Never.",
        measure=1,
    )


def without_failure_policy(pods: PodSet, spec: Path) -> Finding:
    """What keeps GPU faults from being told from other failures."""
    never = pods.spec.get("restartPolicy") == "Never"
    why = (
        "podReplacementPolicy is stated, and Failed alone goes with a podFailurePolicy"
        if never
        else "the API takes a podFailurePolicy with restartPolicy Never alone"
    )
    return Finding(
        "FaultsCount",
        (*spec, "podFailurePolicy"),
        f"a GPU at fault counts as a failure of the job: {why}",
        "Write podReplacementPolicy: Failed." if never else "Write restartPolicy: Never.",
    )
