"""`gpugate audit`: report what the policies would do to existing workloads."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Policy
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
from gpugate.webhook.cli import options
from gpugate.webhook.files.inputs import builder_of, dumped_objects, gives_facts, load_policies, objects_in
from gpugate.webhook.files.yaml import dump
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.prometheus.client import Address, PrometheusError
from gpugate.webhook.prometheus.poller import fetch_readings, idle_times
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.errors import InputError
from gpugate.webhook.runtime.times import rfc3339


class AuditOutput(StrEnum):
    """Output format of an audit."""

    TABLE = "table"
    JSON = "json"
    POLICY_REPORT = "policyreport"
    OPEN_REPORT = "openreport"


class _Inputs(NamedTuple):
    """The inputs of an audit.

    Attributes:
        known: sync state of each kind.
        problems: why some policies are invalid, by name.
        remarks: what could not be read.
        source: the audited cluster or files, for the reader.
        readings: GPU metrics of Prometheus; None without them.
    """

    subjects: Sequence[Subject | str]
    builder: SnapshotBuilder
    known: Mapping[str, SyncState]
    policies: Sequence[Policy]
    problems: Mapping[str, str]
    remarks: Sequence[str]
    source: str
    readings: Readings | None = None


def audit(  # noqa: PLR0913 - one parameter per option
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
            metavar="FILE", help="GPUPolicy file; may be repeated. Default: the policies of the input, else the built-in one."
        ),
    ] = None,
    profile: options.ProfileName = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--compare", metavar="FILE", help="GPUPolicy file in force now: show what --policy would change. May be repeated."
        ),
    ] = None,
    as_if_enforced: Annotated[
        bool,
        typer.Option(
            "--as-if-enforced", help="With --compare: count rules in Warn and DryRun as if they were enforced, on both sides."
        ),
    ] = False,
    cluster: options.ClusterFiles = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only workloads of this namespace; may be repeated.")
    ] = None,
    team_label: options.TeamLabels = None,
    output: Annotated[
        AuditOutput,
        typer.Option("--output", "-o", help="table for people, json for machines, or reports as objects of the cluster."),
    ] = AuditOutput.TABLE,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the audit to FILE, as one HTML page.")] = None,
    prometheus: options.PrometheusUrl = "",
    prometheus_token: options.PrometheusToken = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_matcher: options.PrometheusMatchers = None,
    findings: Annotated[bool, typer.Option("--findings/--no-findings", help="Show each workload, not only the totals.")] = True,
    color: options.ColourOption = options.Colour.AUTO,
) -> None:
    """Report what the policies would change or refuse in existing workloads, by rule, team and namespace.

    Rules in Warn and DryRun count as if they were enforced. Nothing is written to the cluster.

    Exit code 0: no workload would be refused (with --compare: newly refused); 1: some would; 2: an input is unusable.
    """
    if against and output not in {AuditOutput.TABLE, AuditOutput.JSON}:
        options.fail("--compare is printed as a table or as json")
    with options.usable_inputs():
        address = options.monitoring(prometheus, prometheus_token, prometheus_ca, prometheus_matcher)
        inputs = _read_inputs(
            paths or [], cluster, kubeconfig, context, namespaces=namespace or (), policies_are_given=bool(policy)
        )
        policies = options.policies_or_default(load_policies(policy) if policy else inputs.policies, profile, Mode.DRY_RUN)
        old = PolicySet(load_policies(against)) if against else None
    console = color.console()
    labels = tuple(team_label or TEAM_LABELS)
    if address is not None:
        inputs = asyncio.run(_with_readings(inputs, address, [policies, old] if old else [policies]))
    result = _evaluate(inputs, policies, labels, namespace)
    if html is not None:
        _write_page(result, html)
    if old is not None:
        before = _evaluate(inputs, old, labels, namespace)
        compared = compare(before.workloads, result.workloads, as_if_enforced=as_if_enforced)
        if output is AuditOutput.JSON:
            sys.stdout.write(dump_json(comparison_document(compared)).decode())
        else:
            print_comparison(compared, console)
        raise typer.Exit(
            options.REFUSED if any(comparison.verdict is ComparisonOutcome.NEWLY_REFUSED for comparison in compared) else 0
        )
    _print(result, output, console, findings=findings)
    raise typer.Exit(options.REFUSED if any(workload.outcome == "refuse" for workload in result.workloads) else 0)


def _read_inputs(
    paths: list[str],
    cluster: list[Path] | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    namespaces: Sequence[str],
    policies_are_given: bool,
) -> _Inputs:
    if cluster and (kubeconfig or context):
        message = "use either --cluster or --kubeconfig and --context for facts, not both"
        raise InputError(message)
    if not paths:
        return asyncio.run(_live(kubeconfig, context, cluster, namespaces, policies_are_given=policies_are_given))
    objects = dumped_objects(paths)
    fact_objects = objects_in(str(path) for path in cluster or ())
    known: dict[str, SyncState] = {}
    if kubeconfig or context:
        fact_objects, known = asyncio.run(fetch(kubeconfig, context))
    builder, given, remarks = _facts_from(fact_objects, objects)
    policies, problems = _latest_policies([*fact_objects, *objects])
    source = ", ".join(paths)
    return _Inputs([*subjects_in(objects)], builder, {**given, **known}, policies, problems, remarks, source)


def _facts_from(
    fact_objects: list[dict[str, Any]], objects: list[dict[str, Any]]
) -> tuple[SnapshotBuilder, dict[str, SyncState], list[str]]:
    """Return a snapshot builder, and remarks on malformed ``objects``; malformed ``fact_objects`` raise an InputError."""
    try:
        return *builder_of([*fact_objects, *objects]), []
    except InputError:
        malformed = [obj for obj in objects if not gives_facts(obj)]
        if not malformed:
            raise
        ids = {id(obj) for obj in malformed}
        builder, given = builder_of([*fact_objects, *(obj for obj in objects if id(obj) not in ids)])
        return builder, given, [f"{describe(obj)} is left out of the facts: a field has the wrong type" for obj in malformed]


async def _live(
    kubeconfig: Path | None, context: str | None, cluster: list[Path] | None, namespaces: Sequence[str], *, policies_are_given: bool
) -> _Inputs:
    if cluster:
        message = "--cluster is for workloads in files: give these files as well"
        raise InputError(message)
    forbidden: dict[str, str] = {}
    objects, known = await fetch(kubeconfig, context, forbidden=forbidden, namespaces=namespaces)
    if POLICIES.resource in forbidden and not policies_are_given:
        raise InputError(options.unknown_policies(forbidden[POLICIES.resource]))
    client = await connect(kubeconfig, context)
    try:
        subjects, unread = await subjects_of(client, namespaces)
        source = f"the cluster at {client.address}"
    finally:
        await client.close()
    builder, given = builder_of(objects)
    policies, problems = _latest_policies(objects)
    remarks = {f"{resource} cannot be read: {message}" for resource, message in forbidden.items()} | set(unread)
    return _Inputs(subjects, builder, {**given, **known}, policies, problems, sorted(remarks), source)


def _latest_policies(objects: Sequence[Mapping[str, Any]]) -> tuple[list[Policy], dict[str, str]]:
    """Return the policies among ``objects``, the last one of each name, and why others are invalid."""
    policies, problems = options.policies_among(objects)
    return list({policy.name: policy for policy in policies}.values()), problems


async def _with_readings(inputs: _Inputs, address: Address, policies: Sequence[PolicySet]) -> _Inputs:
    """Add the GPU metrics of Prometheus to ``inputs``, or a remark why there are none."""
    try:
        return inputs._replace(readings=await fetch_readings(address, idle_times(*policies), time.time()))
    except PrometheusError as error:
        return inputs._replace(remarks=[*inputs.remarks, f"{error}: no GPU metrics are shown"])


def _evaluate(inputs: _Inputs, policies: PolicySet, team_labels: tuple[str, ...], namespaces: list[str] | None) -> Audit:
    snapshot, now = inputs.builder.snapshot(inputs.known), time.time()
    index: WorkloadIndex = index_of(inputs.subjects)
    if inputs.readings is not None:
        snapshot = replace(snapshot, usage=index.usage_of(inputs.readings))
    for _ in index.evaluate(AuditContext(policies, snapshot, team_labels, now), everything=True):
        pass
    audit_inputs = AuditInputs(
        rfc3339(now),
        inputs.source,
        policies,
        snapshot,
        lambda name: inputs.builder.get("nodes", ("", name)),
        inputs.builder.node,
        inputs.problems,
        tuple(inputs.remarks),
        tuple(gangs_among(inputs.subjects, snapshot, policies, now)),
        inputs.readings,
    )
    result = index.build_audit(audit_inputs)
    return result.only(frozenset(namespaces)) if namespaces else result


def _print(result: Audit, output: AuditOutput, console: Console, *, findings: bool) -> None:
    if output is AuditOutput.TABLE:
        print_audit(result, console, findings=findings)
    elif output is AuditOutput.JSON:
        sys.stdout.write(as_json(result).decode())
    else:
        kind = POLICY_REPORT if output is AuditOutput.POLICY_REPORT else OPEN_REPORT
        sys.stdout.write("---\n".join(dump(report) for report in reports_of(result.workloads, kind)))


def _write_page(result: Audit, file: Path) -> None:
    page = render(result)
    try:
        file.write_bytes(page)
    except OSError as error:
        options.fail(f"--html {file}: cannot be written: {error.strerror or error}")
