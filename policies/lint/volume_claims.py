"""A PersistentVolumeClaim that one node alone can mount, of a workload whose pods run on several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.lint.context import LintContext, Pods, list_at, maps_at, pods_in, text_at

_ONE_NODE: Final = "ReadWriteOnce"
_ONE_POD: Final = "ReadWriteOncePod"
_PATH: Final[Path] = ("spec", "accessModes")


def check(obj: Object, around: LintContext) -> Iterator[Finding]:
    """Pods of the same input that cannot mount the claim at once."""
    modes = [one for one in list_at(obj, *_PATH) if isinstance(one, str)]
    if not modes or any(one not in {_ONE_NODE, _ONE_POD} for one in modes):
        return
    place = (around.namespace_of(obj), text_at(obj, "metadata", "name"))
    users = around.kept("users of claims", lambda: _users(around)).get(place, [])
    total = sum(one.number or 1 for one in users)
    if total < 2 and all(one.number is not None for one in users):
        return
    owners = ", ".join(sorted({one.owner for one in users}))
    if modes == [_ONE_POD]:
        message = f"{_ONE_POD} lets one pod mount it, and {total} pods of {owners} do: the others wait"
    else:
        message = f"{_ONE_NODE} lets one node mount it, and {total} pods of {owners} do: those on other nodes never start"
    remedy = (
        "Write ReadWriteMany, or ReadOnlyMany where they only read, with a storage class that has it (NFS, a parallel file system)."
    )
    yield Finding("OneNodeMounts", _PATH, message, remedy, Level.WARN)


def _users(around: LintContext) -> dict[tuple[str, str], list[Pods]]:
    """The pods that mount each claim, by its namespace and name."""
    found: dict[tuple[str, str], list[Pods]] = {}
    for one in pods_in(around):
        claims = {text_at(volume, "persistentVolumeClaim", "claimName") for _, volume in maps_at(one.pods.spec, "volumes")}
        for claim in claims - {""}:
            found.setdefault((one.namespace, claim), []).append(one)
    return found
