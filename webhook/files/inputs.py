"""Read policies and cluster facts from files, for the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpugate.policies.cluster.builder import SnapshotBuilder, builder_from_objects, snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import MalformedError, lookup
from gpugate.policies.policy.models import KIND, Policy, PolicyError, parse_policy
from gpugate.webhook.cache.kinds import configuration_in
from gpugate.webhook.files.documents import Document, UnreadableInput, expand_lists, read_all, read_unexpanded
from gpugate.webhook.runtime.errors import InputError

NO_DOCUMENT: Final = "the input contains no document"


def objects_in(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return every object in these files.

    Raises:
        InputError: a file is unreadable or does not parse.
    """
    return _objects(read_all(paths))


def dumped_objects(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return every object in these files, which must contain at least one document, such as an empty List.

    Raises:
        InputError: a file is unreadable or does not parse, or there is no document.
    """
    documents = list(read_unexpanded(paths))
    if not documents:
        message = NO_DOCUMENT
        raise InputError(message)
    return _objects(expand_lists(documents))


def _objects(documents: Iterable[Document | UnreadableInput]) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    for document in documents:
        if isinstance(document, UnreadableInput):
            message = f"{document.file}: {document.problem}"
            raise InputError(message)
        if isinstance(document.value, dict):
            objects.append(document.value)
    return objects


def load_policies(paths: Iterable[Path]) -> list[Policy]:
    """Return the GPUPolicies in these files.

    Raises:
        InputError: a file is unreadable, contains no GPUPolicy or an invalid one, or two policies have the same name.
    """
    policies: dict[str, Policy] = {}
    for path in paths:
        objects = [obj for obj in objects_in([str(path)]) if obj.get("kind") == KIND]
        if not objects:
            message = f"{path}: contains no {KIND}"
            raise InputError(message)
        for obj in objects:
            try:
                policy = parse_policy(obj)
            except PolicyError as error:
                message = f"{path}: {error}"
                raise InputError(message) from None
            if policy.name in policies:
                message = f"{path}: there are two policies with the name {policy.name}"
                raise InputError(message)
            policies[policy.name] = policy
    return list(policies.values())


def load_facts(paths: Iterable[Path]) -> ClusterSnapshot:
    """Return a snapshot from files of plain Kubernetes objects.

    Raises:
        InputError: a file is unreadable, or a field of an object has the wrong type.
    """
    return snapshot_of(objects_in(str(path) for path in paths))


def snapshot_of(objects: Sequence[dict[str, Any]], known: Mapping[str, SyncState] | None = None) -> ClusterSnapshot:
    """Return a snapshot from plain Kubernetes objects; ``known`` overrides the sync state of kinds.

    Raises:
        InputError: a field of an object has the wrong type.
    """
    builder, given = builder_of(objects)
    return builder.snapshot({**given, **(known or {})})


def builder_of(objects: Sequence[dict[str, Any]]) -> tuple[SnapshotBuilder, dict[str, SyncState]]:
    """Return a snapshot builder filled with plain Kubernetes objects, and the sync state of the kinds among them.

    Raises:
        InputError: a field of an object has the wrong type.
    """
    try:
        return builder_from_objects(_unwrap_configurations(objects))
    except MalformedError as error:
        culprit = next((obj for obj in objects if not gives_facts(obj)), {})
        name = lookup(culprit, ("metadata", "name"))
        message = f"cluster facts: {culprit.get('kind')} {name if isinstance(name, str) else 'without a name'}: {error}"
        raise InputError(message) from None


def gives_facts(obj: dict[str, Any]) -> bool:
    """Return whether ``obj`` is readable as a fact, or of a kind that snapshots do not use."""
    try:
        snapshot_from_objects(_unwrap_configurations([obj]))
    except MalformedError:
        return False
    return True


def _unwrap_configurations(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Replace the ConfigMap of Kueue's Configuration by the Configuration, and drop other ConfigMaps."""
    for obj in objects:
        configuration = configuration_in(obj) if obj.get("kind") == "ConfigMap" else obj
        if configuration is not None:
            yield configuration
