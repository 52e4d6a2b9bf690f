"""Where a workload states a minimum of pods below which none may start: by annotation, or in a field of its kind."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import GANG_ELASTIC, Gang, declared_min_size, min_count, min_size
from gpugate.policies.kube.fields import Object, Path, lookup
from gpugate.policies.kube.names import MIN_PARALLELISM
from gpugate.policies.rules.gangs.gang.schedulers import VOLCANO_MINIMUM
from gpugate.policies.workloads.workload import Workload

#: Kueue's partial admission (v0.15 ``pkg/controller/jobs/job``) and Volcano's minimum of what makes pods (v1.10).
_ANNOTATIONS: Final = (MIN_PARALLELISM, VOLCANO_MINIMUM)
_MOST_DIGITS: Final = 9


class _Minimum(NamedTuple):
    """A minimum: where it stands, what it is, how many pods it is a minimum of, and how many of these are enough to run."""

    path: Path
    number: int
    full: int
    least: int


def _stated(workload: Workload, gang: Gang) -> Iterator[_Minimum]:
    """Every minimum that the workload states."""
    holders: list[tuple[Path, Object]] = [(("metadata", "annotations"), workload.annotations())]
    if gang.pods.path:
        holders.append((gang.pods.meta("annotations"), gang.pods.annotations()))
    for key in _ANNOTATIONS:
        for path, holder in holders:
            written = holder.get(key)
            # What is no number is for the scheduler to refuse.
            if type(written) is str and written.isascii() and written.isdigit():
                yield _Minimum((*path, key), int(written[:_MOST_DIGITS]), gang.size, min_size(workload, gang.size))
    field = workload.kind.min_available
    minimum = None if field is None else lookup(workload.root, field.path)
    if field is not None and type(minimum) is int and (minimum or not field.zero_is_absent):
        yield _of_field(workload, field.path, minimum)


def _of_field(workload: Workload, path: Path, minimum: int) -> _Minimum:
    # What waits for the others may come later: to hold it with them would have it wait for itself.
    first = [pods for pods in workload.pod_sets if not pods.starts_late and not pods.follows]
    full = sum(pods.count or 0 for pods in first)
    stated = declared_min_size(workload, full)
    return _Minimum(path, minimum, full, sum(map(min_count, first)) if stated is None else stated)


def check_minimum(workload: Workload, gang: Gang) -> Iterator[Finding]:
    """Refuse a minimum below the full size of a gang that is not declared elastic."""
    for place, minimum, full, least in _stated(workload, gang):
        if minimum < least:
            wanted = f'"{least}"' if "annotations" in place else str(least)
            yield Finding(
                "PartialStart",
                place,
                f"a minimum of {minimum} lets {minimum} of {full} pods start: {minimum} < {least}",
                f'Write {wanted}, or remove {place[-1]}; a gang that can run with fewer says so by {GANG_ELASTIC}: "true".',
                measure=least - minimum,
            )
