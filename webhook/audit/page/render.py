"""Render one audit as one self-contained HTML page.

The same audit renders to the same bytes. Style and script are inline, and the Content-Security-Policy allows no others: names
and messages of the cluster are always text.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, most_severe
from gpugate.webhook.audit.ownership import divisions_of
from gpugate.webhook.audit.page import format as formatting
from gpugate.webhook.audit.page.sections import (
    MOST_LINES,
    MOST_NODES,
    MOST_SHAPES,
    exemptions_of,
    gangs_of,
    idle_of,
    queues_of,
    quotas_of,
    rules_by_mode,
    stocks_of,
)
from gpugate.webhook.audit.page.tiles import share
from gpugate.webhook.audit.totals import figures_of, modes_of, rehearsed_among

#: Largest size of the list of workloads in bytes; further workloads are counted, not listed.
WORKLOADS_BUDGET: Final = 10_000_000
#: Workloads in one block: a browser lays out only the blocks that are on the screen.
_BLOCK: Final = 50
#: Findings of one workload that the page shows.
MOST_FINDINGS: Final = 40
_OUTCOMES: Final = (*(effect.value for effect in Effect), "clean")


class Block(NamedTuple):
    """Rendered workloads that are laid out together, and their number."""

    size: int
    rows: Markup


class OutcomeGroup(NamedTuple):
    """Workloads of one outcome: their number, the number and accelerators of the listed ones, and their blocks."""

    outcome: str
    workloads: int
    listed: int
    devices: int
    blocks: Sequence[Block]


def render(audit: Audit) -> bytes:
    """Render ``audit`` as one self-contained HTML page in UTF-8."""
    environment = _environment()
    figures = figures_of(audit)
    groups = list(_groups(audit, environment))
    modes = modes_of(audit)
    text = environment.get_template("page.html").render(
        audit=audit,
        figures=figures,
        modes=modes,
        rehearsed=rehearsed_among(modes) or [Mode.DRY_RUN.value],
        titles={rule: BY_ID[rule].title for rule in figures.rules if rule in BY_ID},
        teams=list(islice(figures.teams.items(), MOST_LINES)),
        namespaces=list(islice(figures.namespaces.items(), MOST_LINES)),
        stocks=stocks_of(audit),
        gangs=gangs_of(audit),
        divisions=divisions_of(audit),
        idle=idle_of(audit),
        exemptions=exemptions_of(audit),
        queues=queues_of(audit),
        quotas=quotas_of(audit),
        policies=audit.policies[:MOST_LINES],
        groups=groups,
        listed=sum(group.listed for group in groups),
        devices=sum(group.devices for group in groups),
        most=MOST_LINES,
        most_nodes=max(20, MOST_NODES // max(1, min(len(audit.shapes), MOST_SHAPES))),
        csp=content_security_policy(),
    )
    return text.encode()


def waiting() -> bytes:
    """Render the page before the first audit; it reloads itself."""
    return _environment().get_template("waiting.html").render(csp=content_security_policy()).encode()


@cache
def content_security_policy() -> str:
    """Return the policy of the page: its own style and script, and nothing else."""
    style, script = _hash(asset("page.css")), _hash(asset("page.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def asset(name: str) -> str:
    """Return a file of the page."""
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    folder = resources.files(__package__).joinpath("templates")
    templates = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".html")}
    environment = Environment(
        loader=DictLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    environment.filters.update(
        brief=lambda text, longest=200: formatting.shown(text, longest),
        number=formatting.number,
        memory=formatting.memory,
        cores=formatting.cores,
        hours=formatting.hours,
    )
    environment.globals.update(
        amount_of=formatting.amount_of,
        share=share,
        query=_query,
        outcome_of=outcome_of,
        rules_by_mode=rules_by_mode,
        label_of=_label,
        script_items=_script_items,
        rules_of=lambda workload: sorted({item.rule for item in workload.items}),
        most_findings=MOST_FINDINGS,
        # Constants of the product, whose hashes are in the policy.
        style=Markup(asset("page.css")),  # noqa: S704
        script=Markup(asset("page.js")),  # noqa: S704
    )
    return environment


def _final(value: Any) -> Any:  # noqa: ANN401 - the value of any expression of a template
    """Replace deceptive characters in every text that a template prints; autoescape makes it harmless to the browser."""
    return formatting.shown(value) if type(value) is str else value


def _query(**criteria: str) -> str:
    return urlencode({key: formatting.shown(value) for key, value in sorted(criteria.items())})


def outcome_of(workload: AuditedWorkload) -> str:
    """Return the most severe effect of any rule on ``workload``; ``clean`` for none."""
    effect = most_severe(workload.items)
    return "clean" if effect is None else effect.value


def _label(workload: AuditedWorkload) -> str:
    effect = most_severe(workload.items)
    if effect is None:
        return "clean"
    would = all(item.rehearsed for item in workload.items if item.effect is effect)
    return _effect_label(effect.value, would=would)


def _effect_label(effect: str, *, would: bool) -> str:
    """Return the name of an effect: ``would refuse`` in Warn and DryRun."""
    if effect in {"unknown", "exempt"}:
        return effect
    verbs: Mapping[str, str] = {"refuse": "refuses", "change": "changes", "warn": "warns"}
    return f"would {effect}" if would else verbs[effect]


def _script_items(workload: AuditedWorkload) -> str:
    """Return rule, mode and effect of each item of ``workload``, once each, for the script."""
    return ";".join(dict.fromkeys(f"{item.rule},{item.mode.value},{item.effect.value}" for item in workload.items))


def _groups(audit: Audit, environment: Environment) -> Iterator[OutcomeGroup]:
    """Yield the workloads by outcome, the most severe first, as many as fit on the page."""
    by_outcome: dict[str, list[AuditedWorkload]] = {outcome: [] for outcome in _OUTCOMES}
    for workload in audit.workloads:
        by_outcome[outcome_of(workload)].append(workload)
    row = environment.get_template("workload.html").module.row  # type: ignore[attr-defined]
    left = WORKLOADS_BUDGET
    for outcome, workloads in by_outcome.items():
        if not workloads:
            continue
        rows: list[Markup] = []
        devices = 0
        for workload in sorted(workloads, key=lambda workload: (-workload.accelerators, workload.key)):
            text = row(workload, _effect_label)
            left -= len(text.encode())
            if left < 0:
                break
            rows.append(text)
            devices += workload.accelerators
        parts = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
        blocks = [Block(len(part), Markup("").join(part)) for part in parts]
        yield OutcomeGroup(outcome, len(workloads), len(rows), devices, blocks)
