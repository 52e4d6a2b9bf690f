"""Policies and facts from files, for the command line."""

from __future__ import annotations

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
    """Every object in these files, other documents left out.

    Raises:
        InputError: a file cannot be read or does not parse.
    """
    return _objects(read_all(paths))


def dumped_in(paths: Iterable[str]) -> list[dict[str, Any]]:
    """The same of files that hold something: an empty list of objects, but not nothing at all.

    Raises:
        InputError: a file cannot be read or does not parse, or there is no document.
    """
    documents = [one for file in files_of(paths) for one in _documents(file)]
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
    found: list[dict[str, Any]] = []
    for document in documents:
        if isinstance(document, UnreadableInput):
            message = f"{document.file}: {document.problem}"
            raise InputError(message)
        if isinstance(document.value, dict):
            found.append(document.value)
    return found


def load_policies(paths: Iterable[Path]) -> list[Policy]:
    """The GPUPolicies in these files.

    Raises:
        InputError: a file cannot be read, holds no GPUPolicy, or one that is wrong; or two have the same name.
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
    """Facts from files of plain Kubernetes objects, and from ``more`` objects.

    Raises:
        InputError: a file cannot be read, or an object in it has a field of the wrong type.
    """
    return facts_of([*objects_in(str(path) for path in paths), *more])


def facts_of(objects: Sequence[dict[str, Any]], known: Mapping[str, SyncState] | None = None) -> ClusterSnapshot:
    """Facts from plain Kubernetes objects, as :func:`snapshot_from_objects` makes them.

    Raises:
        InputError: an object has a field of the wrong type.
    """
    builder, given = builder_of(objects)
    return builder.snapshot({**given, **(known or {})})


def builder_of(objects: Sequence[dict[str, Any]]) -> tuple[SnapshotBuilder, dict[str, SyncState]]:
    """A builder of facts that has taken plain Kubernetes objects, and of which kinds there were any.

    Raises:
        InputError: an object has a field of the wrong type.
    """
    try:
        return builder_from_objects(_plain(objects))
    except MalformedError as error:
        culprit = next((one for one in objects if not gives_facts(one)), {})
        name = lookup(culprit, ("metadata", "name"))
        message = f"cluster facts: {culprit.get('kind')} {name if isinstance(name, str) else 'without a name'}: {error}"
        raise InputError(message) from None


def gives_facts(obj: dict[str, Any]) -> bool:
    """Whether ``obj`` can be read as a fact, or is of no kind that is one."""
    try:
        snapshot_from_objects(_plain([obj]))
    except MalformedError:
        return False
    return True


def _plain(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """``objects`` with Kueue's Configuration in place of the ConfigMap that holds it."""
    for one in objects:
        if one.get("kind") != "ConfigMap":
            yield one
            continue
        found = configuration_in(one)
        if found is not None:
            yield found
