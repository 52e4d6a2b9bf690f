"""What manifests are judged by, as `gpugate review` and `gpugate fix` take it: policies and facts."""

from __future__ import annotations

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
from gpugate.webhook.files.inputs import facts_of, gives_facts, load_policies, objects_in
from gpugate.webhook.runtime.errors import InputError

#: Kinds that are read from the judged input itself, as facts for the workloads beside them.
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
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Take facts and policies from this cluster.")
]
Context: TypeAlias = Annotated[str | None, typer.Option("--context", help="Take facts and policies from this context's cluster.")]
Namespace: TypeAlias = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of objects that state none.")]


class Colour(StrEnum):
    """When to print in colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"

    def settings(self) -> dict[str, Any]:
        """What a console of rich is made with; left out, it asks the terminal and the environment."""
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
    """The facts and the policies to judge ``documents`` by; ``namespace`` is that of objects that state none.

    What may not be read of a live cluster is told on standard error, and is not known.

    Raises:
        InputError: something that the user named cannot be used.
        ClusterError: the cluster cannot be asked.
    """
    own = [one.value for one in documents if isinstance(one, Document) and _is_own_fact(one.value)]
    objects: list[dict[str, Any]] = []
    known: dict[str, SyncState] = {}
    if cluster and (kubeconfig or context):
        message = "give facts either by --cluster or by --kubeconfig and --context, not both"
        raise InputError(message)
    if cluster:
        objects = objects_in(str(path) for path in cluster)
    elif kubeconfig or context:
        objects, known = _readable(kubeconfig, context, _namespaces(documents, namespace), policies_are_given=bool(policy))
    snapshot = facts_of([*objects, *own], known) if objects or own else EMPTY_SNAPSHOT
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
        typer.echo(f"gpugate: {resource} cannot be read, and what hangs on them is not known: {message}", err=True)
    return objects, known


def unknown_policies(why: str) -> str:
    """What to say where the policies of a cluster may not be read."""
    return f"{why}: which policies are in force is not known; give yours by --policy"


def _namespaces(documents: Sequence[Document | UnreadableInput], namespace: str) -> list[str]:
    """The namespaces of the workloads: whoever may read these alone still learns what matters to them there."""
    values = [one.value for one in documents if isinstance(one, Document) and isinstance(one.value, dict)]
    workloads = [one for one in values if kind_of(str(one.get("apiVersion")), str(one.get("kind"))) is not None]
    stated = {lookup(one, ("metadata", "namespace")) or namespace for one in workloads}
    return sorted(one for one in stated if isinstance(one, str) and one)


def _is_own_fact(value: object) -> bool:
    return isinstance(value, dict) and str(value.get("kind")) in _OWN_FACTS and gives_facts(value)


def _policies_among(objects: Sequence[dict[str, Any]]) -> list[Policy]:
    found = []
    for one in objects:
        if one.get("kind") == KIND:
            try:
                found.append(parse_policy(one))
            except PolicyError as error:
                message = f"a {KIND} of the cluster does not parse: {error}"
                raise InputError(message) from None
    return found
