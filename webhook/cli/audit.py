"""`gpugate audit`: report what the policies would do to existing workloads."""

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.findings import Mode
from gpugate.policies.kube.fields import lookup
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import KIND, Policy, PolicyError, default_policy, parse_policy
from gpugate.webhook.audit.compare import ComparisonOutcome, compare
from gpugate.webhook.audit.evaluate import TEAM_LABELS, AuditContext, gangs_among
from gpugate.webhook.audit.index import AuditInputs, WorkloadIndex, index_of
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import as_json, comparison_document, dump_json
from gpugate.webhook.audit.output.policy_reports import OPEN_REPORT, POLICY_REPORT, reports_of
from gpugate.webhook.audit.output.text import print_audit, print_comparison
from gpugate.webhook.audit.page.render import render
from gpugate.webhook.audit.subjects import Subject, describe, subjects_in, subjects_of
from gpugate.webhook.cache.fetch import fetch
from gpugate.webhook.cache.kinds import POLICIES
from gpugate.webhook.cli.context import ClusterFiles, Colour, ColourOption, Context, Kubeconfig, unknown_policies
from gpugate.webhook.cli.options import PrometheusCa, PrometheusMatchers, PrometheusToken, PrometheusUrl, fail, monitoring
from gpugate.webhook.files.inputs import builder_of, dumped_in, gives_facts, load_policies, objects_in
from gpugate.webhook.files.yaml_out import dump
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.prometheus.client import Address, PrometheusError
from gpugate.webhook.prometheus.poller import fetch_readings, idle_times
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.times import rfc3339

REFUSED = 1


class AuditOutput(StrEnum):
    """Output format of an audit."""

    TABLE = "table"
    JSON = "json"
    POLICY_REPORT = "policyreport"
    OPEN_REPORT = "openreport"


class _Inputs(NamedTuple):
    """The inputs of an audit.

    Attributes:
        subjects: the objects.
        builder: the facts.
        known: sync state of each kind.
        policies: the policies found.
        problems: why some policies are invalid.
        remarks: what could not be read.
        source: the audited cluster or files, in words.
        readings: device figures of Prometheus; None without them.
    """

    subjects: Sequence[Subject | str]
    builder: SnapshotBuilder
    known: Mapping[str, SyncState]
    policies: Sequence[Policy]
    problems: Mapping[str, str]
    remarks: Sequence[str]
    source: str
    readings: Readings | None = None


def audit(  # noqa: PLR0913 - one parameter an option
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Files of plain objects (kubectl get ... -o yaml), directories, or -; without any, the live cluster is read.",
        ),
    ] = None,
    *,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="GPUPolicy file; may be repeated. Default: the policies that are there, else the built-in one."
        ),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare", metavar="FILE", help="GPUPolicy file in force now: show what --policy would change. May be repeated."
        ),
    ] = None,
    as_if_enforced: Annotated[
        bool, typer.Option("--as-if-enforced", help="With --compare: count what rules in DryRun would do, too, on both sides.")
    ] = False,
    cluster: ClusterFiles = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only workloads of this namespace; may be repeated.")
    ] = None,
    team_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Label that says who a workload belongs to; may be repeated.")
    ] = None,
    output: Annotated[
        AuditOutput,
        typer.Option("--output", "-o", help="table for people, json for machines, or reports as objects of the cluster."),
    ] = AuditOutput.TABLE,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the audit as one page to FILE, too.")] = None,
    prometheus: PrometheusUrl = "",
    prometheus_token: PrometheusToken = None,
    prometheus_ca: PrometheusCa = None,
    prometheus_matcher: PrometheusMatchers = None,
    findings: Annotated[bool, typer.Option("--findings/--no-findings", help="Show each workload, not the sums alone.")] = True,
    color: ColourOption = Colour.AUTO,
) -> None:
    """Report what the policies would change or refuse in existing workloads, by rule, team and namespace.

    Rules in DryRun count as if they were enforced. Nothing is written to the cluster.

    Exit code 0: no workload would be refused (with --compare: newly refused); 1: some would; 2: an input is unusable.
    """
    if against and output not in {AuditOutput.TABLE, AuditOutput.JSON}:
        fail("--compare is printed as a table or as json")
    try:
        address = monitoring(prometheus, prometheus_token, prometheus_ca, prometheus_matcher)
        inputs = _read_inputs(
            paths or [], cluster, kubeconfig, context, namespaces=namespace or (), policies_are_given=bool(policy)
        )
        policies = PolicySet(load_policies(policy) if policy else inputs.policies or [default_policy(Mode.DRY_RUN)])
        old = PolicySet(load_policies(against)) if against else None
    except (InputError, ClusterError) as error:
        fail(str(error))
    console = Console(file=sys.stdout, highlight=False, markup=False, **color.settings())
    labels = tuple(team_label or TEAM_LABELS)
    if address is not None:
        inputs = asyncio.run(_with_readings(inputs, address, [policies, old] if old else [policies]))
    value = _only(_evaluate(inputs, policies, labels), namespace)
    if html is not None:
        _write_page(value, html)
    if old is not None:
        before = _only(_evaluate(inputs, old, labels), namespace)
        compared = compare(before.workloads, value.workloads, as_if_enforced=as_if_enforced)
        if output is AuditOutput.JSON:
            sys.stdout.write(dump_json(comparison_document(compared)).decode())
        else:
            print_comparison(compared, console)
        raise typer.Exit(REFUSED if any(comparison.verdict is ComparisonOutcome.NEWLY_REFUSED for comparison in compared) else 0)
    _print(value, output, console, findings=findings)
    raise typer.Exit(REFUSED if any(workload.outcome == "refuse" for workload in value.workloads) else 0)


def _read_inputs(
    paths: list[str],
    cluster: list[Path] | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    namespaces: Sequence[str],
    policies_are_given: bool,
) -> _Inputs:
    """Read all inputs.

    Raises:
        InputError: an input of the user is unusable.
        ClusterError: the cluster does not answer.
    """
    if cluster and (kubeconfig or context):
        message = "give facts either by --cluster or by --kubeconfig and --context, not both"
        raise InputError(message)
    if not paths:
        return asyncio.run(_live(kubeconfig, context, cluster, namespaces, policies_are_given=policies_are_given))
    objects = dumped_in(paths)
    fact_objects = objects_in(str(path) for path in cluster or ())
    known: dict[str, SyncState] = {}
    if kubeconfig or context:
        fact_objects, known = asyncio.run(fetch(kubeconfig, context))
    builder, given, remarks = _facts_from(fact_objects, objects)
    policies, problems = _policies_among([*fact_objects, *objects])
    source = ", ".join(paths)
    return _Inputs([*subjects_in(objects)], builder, {**given, **known}, policies, problems, remarks, source)


def _facts_from(
    fact_objects: list[dict[str, Any]], objects: list[dict[str, Any]]
) -> tuple[SnapshotBuilder, dict[str, SyncState], list[str]]:
    """Return a snapshot builder, and remarks on ``objects`` that it could not read: one malformed object spoils no audit.

    Raises:
        InputError: a field of ``fact_objects``, which the user named, has the wrong type.
    """
    try:
        return *builder_of([*fact_objects, *objects]), []
    except InputError:
        spoilt = [one for one in objects if not gives_facts(one)]
        if not spoilt:
            raise
        left = {id(one) for one in spoilt}
        builder, given = builder_of([*fact_objects, *(one for one in objects if id(one) not in left)])
        return builder, given, [f"{describe(one)} is left out of the facts: a field has the wrong type" for one in spoilt]


async def _live(
    kubeconfig: Path | None, context: str | None, cluster: list[Path] | None, namespaces: Sequence[str], *, policies_are_given: bool
) -> _Inputs:
    if cluster:
        message = "--cluster gives facts for workloads in files: name these, too"
        raise InputError(message)
    forbidden: dict[str, str] = {}
    objects, known = await fetch(kubeconfig, context, forbidden=forbidden, namespaces=namespaces)
    if POLICIES.resource in forbidden and not policies_are_given:
        raise InputError(unknown_policies(forbidden[POLICIES.resource]))
    client = await connect(kubeconfig, context)
    try:
        subjects, unread = await subjects_of(client, namespaces)
        source = f"the cluster at {client.address}"
    finally:
        await client.close()
    builder, given = builder_of(objects)
    policies, problems = _policies_among(objects)
    remarks = {f"{resource} cannot be read: {message}" for resource, message in forbidden.items()} | set(unread)
    return _Inputs(subjects, builder, {**given, **known}, policies, problems, sorted(remarks), source)


def _policies_among(objects: Iterable[Mapping[str, Any]]) -> tuple[list[Policy], dict[str, str]]:
    policies: dict[str, Policy] = {}
    problems: dict[str, str] = {}
    for one in objects:
        if one.get("kind") == KIND:
            try:
                value = parse_policy(dict(one))
            except PolicyError as error:
                name = lookup(one, ("metadata", "name"))
                problems[name if isinstance(name, str) else "without a name"] = str(error)
            else:
                policies[value.name] = value
    return list(policies.values()), problems


async def _with_readings(inputs: _Inputs, address: Address, policies: Sequence[PolicySet]) -> _Inputs:
    """Add the figures of Prometheus to ``inputs``, or a remark why there are none."""
    try:
        return inputs._replace(readings=await fetch_readings(address, idle_times(*policies), time.time()))
    except PrometheusError as error:
        return inputs._replace(remarks=[*inputs.remarks, f"{error}: no GPU figures are shown"])


def _evaluate(inputs: _Inputs, policies: PolicySet, team_labels: tuple[str, ...]) -> Audit:
    snapshot, now = inputs.builder.snapshot(inputs.known), time.time()
    index: WorkloadIndex = index_of(inputs.subjects)
    if inputs.readings is not None:
        snapshot = replace(snapshot, usage=index.usage_of(inputs.readings))
    for _ in index.evaluate(AuditContext(policies, snapshot, team_labels, now), everything=True):
        pass
    nodes = inputs.builder
    fact_objects = AuditInputs(
        rfc3339(now),
        inputs.source,
        policies,
        snapshot,
        lambda name: nodes.get("nodes", ("", name)),
        nodes.node,
        inputs.problems,
        tuple(inputs.remarks),
        tuple(gangs_among(inputs.subjects, snapshot, policies, now)),
        inputs.readings,
    )
    return index.build_audit(fact_objects)


def _only(found: Audit, namespaces: list[str] | None) -> Audit:
    """Return the part of an audit for some namespaces."""
    return found if not namespaces else found.only(frozenset(namespaces))


def _print(found: Audit, output: AuditOutput, console: Console, *, findings: bool) -> None:
    if output is AuditOutput.TABLE:
        print_audit(found, console, findings=findings)
    elif output is AuditOutput.JSON:
        sys.stdout.write(as_json(found).decode())
    else:
        kind = POLICY_REPORT if output is AuditOutput.POLICY_REPORT else OPEN_REPORT
        sys.stdout.write("---\n".join(dump(report) for report in reports_of(found.workloads, kind)))


def _write_page(found: Audit, file: Path) -> None:
    page = render(found)
    try:
        file.write_bytes(page)
    except OSError as error:
        fail(f"--html {file}: cannot be written: {error.strerror or error}")
