"""Read policies and cluster facts from files, for the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpugate.policies.cluster.builder import SnapshotBuilder, builder_from_objects, snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import MalformedError, lookup
from gpugate.policies.policy.models import KIND, Policy, PolicyError, parse_policy
from gpugate.webhook.cache.kinds import configuration_in
from gpugate.webhook.files.documents import Document, UnreadableInput, files_of, load, parse, read_all, unfolded
from gpugate.webhook.runtime.errors import InputError


def objects_in(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return every object in these files.

    Raises:
        InputError: a file is unreadable or does not parse.
    """
    return _objects(read_all(paths))


def dumped_in(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return every object in these files, which must hold at least one document: an empty List is one.

    Raises:
        InputError: a file is unreadable or does not parse, or there is no document.
    """
    documents = [document for file in files_of(paths) for document in _documents(file)]
    if not documents:
        message = "the input holds no document"
        raise InputError(message)
    return _objects(unfolded(documents))


def _documents(file: str | UnreadableInput) -> Iterator[Document | UnreadableInput]:
    source = file if isinstance(file, UnreadableInput) else load(file)
    if isinstance(source, UnreadableInput):
        yield source
    else:
        yield from parse(source.file, source.text)


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
        InputError: a file is unreadable, holds no GPUPolicy or an invalid one, or two policies have the same name.
    """
    policies: dict[str, Policy] = {}
    for path in paths:
        objects = objects_in([str(path)])
        mine = [one for one in objects if one.get("kind") == KIND]
        if not mine:
            message = f"{path}: holds no {KIND}"
            raise InputError(message)
        for one in mine:
            try:
                policy = parse_policy(one)
            except PolicyError as error:
                message = f"{path}: {error}"
                raise InputError(message) from None
            if policy.name in policies:
                message = f"{path}: there are two policies called {policy.name}"
                raise InputError(message)
            policies[policy.name] = policy
    return list(policies.values())


def load_facts(paths: Iterable[Path], more: Iterable[dict[str, Any]] = ()) -> ClusterSnapshot:
    """Return a snapshot from files of plain Kubernetes objects, and from ``more`` objects.

    Raises:
        InputError: a file is unreadable, or a field of an object has the wrong type.
    """
    return facts_of([*objects_in(str(path) for path in paths), *more])


def facts_of(objects: Sequence[dict[str, Any]], known: Mapping[str, SyncState] | None = None) -> ClusterSnapshot:
    """Return a snapshot from plain Kubernetes objects, as :func:`snapshot_from_objects` makes it.

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
        culprit = next((one for one in objects if not gives_facts(one)), {})
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
    """Replace the ConfigMap of Kueue's Configuration by the Configuration."""
    for one in objects:
        if one.get("kind") != "ConfigMap":
            yield one
            continue
        value = configuration_in(one)
        if value is not None:
            yield value
