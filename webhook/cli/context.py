"""Policies and facts for `gpugate review`, `gpugate fix` and `gpugate replay`."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.findings import Mode
from gpugate.policies.kube.fields import lookup
from gpugate.policies.policy.models import KIND, Policy, PolicyError, default_policy, parse_policy
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.cache.fetch import fetch
from gpugate.webhook.cache.kinds import POLICIES
from gpugate.webhook.files.documents import Document, UnreadableInput
from gpugate.webhook.files.inputs import gives_facts, load_policies, objects_in, snapshot_of
from gpugate.webhook.runtime.errors import InputError

#: Kinds of the reviewed input that are facts for the workloads beside them.
_OWN_FACTS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})

PolicyFiles: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--policy", metavar="FILE", help="GPUPolicy file; may be repeated. Default: the built-in one, enforced."),
]
ClusterFiles: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--cluster", metavar="FILE", help="Plain Kubernetes objects (nodes, queues) as facts; may be repeated."),
]
Kubeconfig: TypeAlias = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Read facts and policies from this cluster.")
]
Context: TypeAlias = Annotated[
    str | None, typer.Option("--context", help="Read facts and policies from the cluster of this context.")
]
Namespace: TypeAlias = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of objects without one.")]


class Colour(StrEnum):
    """When to print in colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"

    def settings(self) -> dict[str, Any]:
        """Return the arguments of a rich console; empty lets it detect terminal and environment."""
        if self is Colour.ALWAYS:
            return {"force_terminal": True, "color_system": "standard", "no_color": False}
        return {"force_terminal": False, "no_color": True} if self is Colour.NEVER else {}


ColourOption: TypeAlias = Annotated[Colour, typer.Option("--color", help="When to print in colour.")]


def review_context(
    documents: Sequence[Document | UnreadableInput],
    policy: list[Path] | None,
    cluster: list[Path] | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str = "",
) -> tuple[ClusterSnapshot, list[Policy]]:
    """Return the snapshot and the policies for ``documents``; ``namespace`` is for objects without one.

    Forbidden kinds of a live cluster are reported on standard error, and stay unknown.

    Raises:
        InputError: an input of the user is unusable.
        ClusterError: the cluster does not answer.
    """
    own = [document.value for document in documents if isinstance(document, Document) and _is_own_fact(document.value)]
    objects: list[dict[str, Any]] = []
    known: dict[str, SyncState] = {}
    if cluster and (kubeconfig or context):
        message = "use either --cluster or --kubeconfig and --context, not both"
        raise InputError(message)
    if cluster:
        objects = objects_in(str(path) for path in cluster)
    elif kubeconfig or context:
        objects, known = _readable(kubeconfig, context, _namespaces(documents, namespace), policies_are_given=bool(policy))
    snapshot = snapshot_of([*objects, *own], known) if objects or own else EMPTY_SNAPSHOT
    if policy:
        return snapshot, load_policies(policy)
    return snapshot, _policies_among(objects) or [default_policy(Mode.ENFORCE)]


def _readable(
    kubeconfig: Path | None, context: str | None, namespaces: list[str], *, policies_are_given: bool
) -> tuple[list[dict[str, Any]], dict[str, SyncState]]:
    forbidden: dict[str, str] = {}
    objects, known = asyncio.run(fetch(kubeconfig, context, forbidden=forbidden, namespaces=namespaces))
    unread = forbidden.pop(POLICIES.resource, None)
    if unread is not None and not policies_are_given:
        raise InputError(unknown_policies(unread))
    for resource, message in sorted(forbidden.items()):
        typer.echo(f"gpugate: {resource} cannot be read, and checks that need them report unknown: {message}", err=True)
    return objects, known


def unknown_policies(why: str) -> str:
    """Return the message for a cluster whose policies may not be read."""
    return f"{why}: the policies in force are unknown; name policy files by --policy"


def _namespaces(documents: Sequence[Document | UnreadableInput], namespace: str) -> list[str]:
    """Return the namespaces of the workloads, for users with rights in these only."""
    values = [document.value for document in documents if isinstance(document, Document) and isinstance(document.value, dict)]
    workloads = [value for value in values if kind_of(str(value.get("apiVersion")), str(value.get("kind"))) is not None]
    stated = {lookup(workload, ("metadata", "namespace")) or namespace for workload in workloads}
    return sorted(one for one in stated if isinstance(one, str) and one)


def _is_own_fact(value: object) -> bool:
    return isinstance(value, dict) and str(value.get("kind")) in _OWN_FACTS and gives_facts(value)


def _policies_among(objects: Sequence[dict[str, Any]]) -> list[Policy]:
    policies = []
    for one in objects:
        if one.get("kind") == KIND:
            try:
                policies.append(parse_policy(one))
            except PolicyError as error:
                message = f"a {KIND} of the cluster is invalid: {error}"
                raise InputError(message) from None
    return policies
