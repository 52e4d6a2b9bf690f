"""Options shared by commands, the policies and facts that they name, and the exit with an error."""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeAlias

import typer
from rich.console import Console

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.findings import Mode
from gpugate.policies.kube.fields import lookup
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import KIND, Policy, PolicyError, default_policy, parse_policy
from gpugate.policies.policy.profiles import NAMES, OFFLINE, PROFILES, ProfileError, profile_of
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.cache.fetch import fetch
from gpugate.webhook.cache.kinds import POLICIES
from gpugate.webhook.files.documents import Document, UnreadableInput
from gpugate.webhook.files.inputs import gives_facts, load_policies, objects_in, snapshot_of
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.prometheus.client import Address, address_of
from gpugate.webhook.runtime.errors import InputError

#: Exit codes: something is refused, and an input is unusable.
REFUSED: Final = 1
UNUSABLE: Final = 2
_PORT: Final = re.compile("[0-9]{1,5}")
#: Kinds of the reviewed input that are facts for the workloads beside them.
_OWN_FACTS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})

PolicyFiles: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--policy", metavar="FILE", help="GPUPolicy file; may be repeated. Default: the built-in one, enforced."),
]
ProfileName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help=f"Profile to judge by: {', '.join(NAMES)}, or one with a version ({PROFILES[0]}). Default: those of the policies,"
        f" {OFFLINE} without a policy.",
    ),
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
WatchedPolicies: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--policy", metavar="FILE", help="GPUPolicy file; may be repeated. Without it GPUPolicies are watched."),
]
WatchedKubeconfig: TypeAlias = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="kubeconfig of the cluster to watch.")
]
WatchedContext: TypeAlias = Annotated[str | None, typer.Option("--context", help="Context in the kubeconfig.")]
KueueNamespace: TypeAlias = Annotated[
    str, typer.Option("--kueue-namespace", metavar="NAMESPACE", help="Namespace of Kueue and its Configuration.")
]
TeamLabels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--team-label", metavar="KEY", help="Label that says who a workload belongs to; may be repeated."),
]
PrometheusUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--prometheus",
        metavar="URL",
        envvar="GPUGATE_PROMETHEUS",
        show_envvar=True,
        help="Prometheus with dcgm-exporter's series, to find idle GPUs; may contain user and password.",
    ),
]
PrometheusToken: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-token", metavar="FILE", help="File with a bearer token for Prometheus.")
]
PrometheusCa: TypeAlias = Annotated[
    Path | None, typer.Option("--prometheus-ca", metavar="FILE", help="CA certificates to verify Prometheus.")
]
PrometheusMatchers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus-matcher", metavar="MATCHER", help="Use only series that match, such as 'cluster=\"a\"'; may be repeated."
    ),
]


class Colour(StrEnum):
    """When to print in colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"

    def console(self, *, soft_wrap: bool = False) -> Console:
        """Return a console on standard output; ``auto`` detects terminal and environment."""
        settings: dict[str, Any] = {}
        if self is Colour.ALWAYS:
            settings = {"force_terminal": True, "color_system": "standard", "no_color": False}
        elif self is Colour.NEVER:
            settings = {"force_terminal": False, "no_color": True}
        return Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=soft_wrap, **settings)


ColourOption: TypeAlias = Annotated[Colour, typer.Option("--color", help="When to print in colour.")]


def fail(message: str) -> NoReturn:
    """Print one line to standard error, and end with exit code 2."""
    typer.echo(f"gpugate: {message}", err=True)
    raise typer.Exit(UNUSABLE)


@contextmanager
def usable_inputs() -> Iterator[None]:
    """End the program with one line about an input that is unusable, or a cluster that does not answer."""
    try:
        yield
    except (InputError, ClusterError) as error:
        fail(str(error))


def address(listen: str, option: str = "--listen") -> tuple[str, int]:
    """Parse the ``HOST:PORT`` of ``option``; end the program if it is invalid."""
    host, colon, port = listen.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) >= 1 << 16:
        fail(f"{option} {listen}: write HOST:PORT, for example 127.0.0.1:8443 or [::]:8443")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - the meaning of an empty host


def monitoring(url: str, token: Path | None, ca: Path | None, matchers: list[str] | None) -> Address | None:
    """Return the address of Prometheus from the options; None without them.

    Raises:
        InputError: the address is invalid, or missing while other options need it.
    """
    if not url:
        if token or ca or matchers:
            message = "--prometheus-token, --prometheus-ca and --prometheus-matcher need --prometheus URL"
            raise InputError(message)
        return None
    return address_of(url, token_file=token, ca_file=ca, matchers=tuple(matchers or ()))


def check_profile(profile: str | None) -> None:
    """Check that a profile of that name exists.

    Raises:
        InputError: it does not.
    """
    if profile is not None:
        try:
            profile_of(profile)
        except ProfileError as error:
            message = f"--profile {error}"
            raise InputError(message) from None


def policies_or_default(policies: Sequence[Policy], profile: str | None, mode: Mode) -> PolicySet:
    """Return ``policies``, each with ``profile`` if one is given; without policies, the default one in ``mode``.

    Which profile decides is said on standard error if neither a policy nor a profile is given.

    Raises:
        InputError: there is no such profile.
    """
    check_profile(profile)
    if not policies:
        if profile is None:
            typer.echo(f"gpugate: no policy is given, so the profile {OFFLINE} decides (--profile chooses another)", err=True)
        return PolicySet([default_policy(mode, profile or OFFLINE)])
    if profile is None:
        return PolicySet(policies)
    return PolicySet(policy.model_copy(update={"spec": policy.spec.model_copy(update={"profile": profile})}) for policy in policies)


def review_context(
    documents: Sequence[Document | UnreadableInput],
    policy: list[Path] | None,
    profile: str | None,
    cluster: list[Path] | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str = "",
) -> tuple[ClusterSnapshot, PolicySet]:
    """Return the snapshot and the policies for ``documents``; ``namespace`` is for objects without one.

    Forbidden kinds of a live cluster are reported on standard error, and stay unknown.

    Raises:
        InputError: an input of the user is unusable.
        ClusterError: the cluster does not answer.
    """
    values = [document.value for document in documents if isinstance(document, Document) and isinstance(document.value, dict)]
    own = [value for value in values if str(value.get("kind")) in _OWN_FACTS and gives_facts(value)]
    objects: list[dict[str, Any]] = []
    known: dict[str, SyncState] = {}
    if cluster and (kubeconfig or context):
        message = "use either --cluster or --kubeconfig and --context, not both"
        raise InputError(message)
    if cluster:
        objects = objects_in(str(path) for path in cluster)
    elif kubeconfig or context:
        objects, known = _readable(kubeconfig, context, _namespaces(values, namespace), policies_are_given=bool(policy))
    snapshot = snapshot_of([*objects, *own], known) if objects or own else EMPTY_SNAPSHOT
    if policy:
        return snapshot, policies_or_default(load_policies(policy), profile, Mode.ENFORCE)
    policies, problems = policies_among(objects)
    for problem in problems.values():
        message = f"a {KIND} of the cluster is invalid: {problem}"
        raise InputError(message)
    return snapshot, policies_or_default(policies, profile, Mode.ENFORCE)


def _readable(
    kubeconfig: Path | None, context: str | None, namespaces: list[str], *, policies_are_given: bool
) -> tuple[list[dict[str, Any]], dict[str, SyncState]]:
    forbidden: dict[str, str] = {}
    objects, known = asyncio.run(fetch(kubeconfig, context, forbidden=forbidden, namespaces=namespaces))
    problem = forbidden.pop(POLICIES.resource, None)
    if problem is not None and not policies_are_given:
        raise InputError(unknown_policies(problem))
    for resource, message in sorted(forbidden.items()):
        typer.echo(f"gpugate: {resource} cannot be read, and checks that need them report unknown: {message}", err=True)
    return objects, known


def unknown_policies(why: str) -> str:
    """Return the message for a cluster where the user may not read the policies."""
    return f"{why}: the policies in force are unknown; give policy files by --policy"


def _namespaces(values: Sequence[dict[str, Any]], namespace: str) -> list[str]:
    """Return the namespaces of the workloads, for users with rights in these only."""
    workloads = [value for value in values if kind_of(str(value.get("apiVersion")), str(value.get("kind"))) is not None]
    names = {lookup(workload, ("metadata", "namespace")) or namespace for workload in workloads}
    return sorted(name for name in names if isinstance(name, str) and name)


def policies_among(objects: Iterable[Mapping[str, Any]]) -> tuple[list[Policy], dict[str, str]]:
    """Return the GPUPolicies among ``objects``, and why others are invalid, by name."""
    policies: list[Policy] = []
    problems: dict[str, str] = {}
    for obj in objects:
        if obj.get("kind") == KIND:
            try:
                policies.append(parse_policy(dict(obj)))
            except PolicyError as error:
                name = lookup(obj, ("metadata", "name"))
                problems[name if isinstance(name, str) else "without a name"] = str(error)
    return policies, problems
