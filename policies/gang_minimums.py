"""Where a workload states a minimum of pods below which none may start: by annotation, or in a field of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.fields import Object, Path, lookup
from gpugate.policies.finding import Finding
from gpugate.policies.gang_marks import VOLCANO_MINIMUM
from gpugate.policies.gangs import Gang, least_size
from gpugate.policies.kinds import GANG_ELASTIC
from gpugate.policies.workload import Workload

#: Kueue's partial admission (v0.15 ``pkg/controller/jobs/job``) and Volcano's minimum of what makes pods (v1.10).
_ANNOTATIONS: Final = ("kueue.x-k8s.io/job-min-parallelism", VOLCANO_MINIMUM)
#: API group to the fields that count the pods of all its pod sets together (Kubeflow v1 ``RunPolicy``, Volcano's Job v1alpha1).
_FIELDS: Final[dict[str, tuple[Path, ...]]] = {
    "kubeflow.org": (("spec", "runPolicy", "schedulingPolicy", "minAvailable"),),
    "batch.volcano.sh": (("spec", "minAvailable"),),
}
_MOST_DIGITS: Final = 9


def _stated(workload: Workload, gang: Gang) -> Iterator[tuple[Path, int, int]]:
    """Every minimum: where it stands, what it is, and how many pods it is a minimum of."""
    holders: list[tuple[Path, Object]] = [(("metadata", "annotations"), workload.annotations())]
    if gang.pods.path:
        holders.append((gang.pods.meta("annotations"), gang.pods.annotations()))
    for key in _ANNOTATIONS:
        for path, holder in holders:
            written = holder.get(key)
            # What is no number is for the scheduler to refuse.
            if type(written) is str and written.isascii() and written.isdigit():
                yield (*path, key), int(written[:_MOST_DIGITS]), gang.size
    for path in _FIELDS.get(workload.kind.group, ()):
        minimum = lookup(workload.root, path)
        if type(minimum) is int:
            # What waits for the others itself may come later: to hold it with them would have it wait for itself.
            yield path, minimum, sum(pods.count or 0 for pods in workload.pod_sets if not pods.starts_late)


def check_minimum(workload: Workload, gang: Gang) -> Iterator[Finding]:
    """Refuse a minimum below the full size of a gang that is not declared elastic."""
    for place, minimum, full in _stated(workload, gang):
        least = least_size(workload, full)
        if minimum < least:
            wanted = f'"{least}"' if "annotations" in place else str(least)
            yield Finding(
                "PartialStart",
                place,
                f"a minimum of {minimum} lets {minimum} of {full} pods start: {minimum} < {least}",
                f'Write {wanted}, or remove {place[-1]}; a gang that can run with fewer says so by {GANG_ELASTIC}: "true".',
                measure=least - minimum,
            )
