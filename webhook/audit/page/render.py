"""One audit as one HTML page that needs nothing else.

The page is a pure function of the audit: same audit, same bytes. Its style and script are in it, and its Content-Security-Policy
lets no other run: whatever a name or message of the cluster holds is text.
"""

from __future__ import annotations

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

from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect
from gpugate.webhook.audit.ownership import divisions_of
from gpugate.webhook.audit.page import format as words
from gpugate.webhook.audit.page.figures import figures_of, gravest, modes_of, outcome_of
from gpugate.webhook.audit.page.sections import (
    MOST_LINES,
    MOST_NODES,
    MOST_SHAPES,
    exemptions_of,
    gangs_of,
    idle_of,
    policies_of,
    queues_of,
    quotas_of,
    stocks_of,
)
from gpugate.webhook.audit.page.tiles import share

#: Bytes that the list of workloads may take; those that come after are counted, not listed.
WORKLOADS_BUDGET: Final = 10_000_000
#: Workloads in one block: a browser lays out only the blocks that are on the screen.
_BLOCK: Final = 50
#: Findings of one workload that the page shows.
MOST_FINDINGS: Final = 40
_OUTCOMES: Final = (*(one.value for one in Effect), "clean")


class Block(NamedTuple):
    """Workloads, ready rendered, that are laid out together, and how many they are."""

    size: int
    rows: Markup


class OutcomeGroup(NamedTuple):
    """Workloads of one outcome: how many there are, how many are listed and with how many accelerators, and the blocks of them."""

    outcome: str
    workloads: int
    listed: int
    devices: int
    blocks: Sequence[Block]


def render(audit: Audit) -> bytes:
    """``audit`` as one self-contained HTML page in UTF-8."""
    environment = _environment()
    figures = figures_of(audit)
    exemptions = exemptions_of(audit)
    groups = list(_groups(audit, environment))
    text = environment.get_template("page.html").render(
        audit=audit,
        figures=figures,
        modes=modes_of(audit),
        titles={rule: BY_ID[rule].title for rule in figures.rules if rule in BY_ID},
        teams=list(islice(figures.teams.items(), MOST_LINES)),
        namespaces=list(islice(figures.namespaces.items(), MOST_LINES)),
        stocks=stocks_of(audit),
        gangs=gangs_of(audit),
        divisions=divisions_of(audit),
        idle=idle_of(audit),
        exemptions=exemptions,
        queues=queues_of(audit),
        quotas=quotas_of(audit),
        policies=policies_of(audit),
        groups=groups,
        listed=sum(group.listed for group in groups),
        devices=sum(group.devices for group in groups),
        most=MOST_LINES,
        most_nodes=max(20, MOST_NODES // max(1, min(len(audit.shapes), MOST_SHAPES))),
        csp=content_security_policy(),
    )
    return text.encode()


def waiting() -> bytes:
    """The page before the first audit is done; it loads itself again."""
    return _environment().get_template("waiting.html").render(csp=content_security_policy()).encode()


@cache
def content_security_policy() -> str:
    """What the page may do: run its own style and script, and nothing else."""
    style, script = _hash(asset("page.css")), _hash(asset("page.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def asset(name: str) -> str:
    """A file that comes with the page."""
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    folder = resources.files(__package__).joinpath("templates")
    templates = {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".html")}
    environment = Environment(
        loader=DictLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    environment.filters.update(
        brief=lambda text, longest=200: words.shown(text, longest),
        number=words.number,
        memory=words.memory,
        cores=words.cores,
        hours=words.hours,
    )
    environment.globals.update(
        amount_of=words.amount_of,
        share=share,
        query=_query,
        outcome_of=outcome_of,
        label_of=_label,
        said=_said,
        rules_of=lambda workload: sorted({one.rule for one in workload.items}),
        most_findings=MOST_FINDINGS,
        # Constants of the product, not of the cluster, whose hash the policy names.
        style=Markup(asset("page.css")),  # noqa: S704
        script=Markup(asset("page.js")),  # noqa: S704
    )
    return environment


def _final(value: Any) -> Any:  # noqa: ANN401 - whatever an expression of a template comes to
    """Every text that a template puts out is made harmless to its reader; autoescape then makes it harmless to the browser."""
    return words.shown(value) if type(value) is str else value


def _query(**wanted: str) -> str:
    """The view of the workloads that shows what is ``wanted``, as the script reads it from the address."""
    return urlencode({key: words.shown(value) for key, value in sorted(wanted.items())})


def _label(workload: AuditedWorkload) -> str:
    """What comes of ``workload``, in a word or two."""
    effect = gravest(workload.items)
    if effect is None:
        return "clean"
    would = all(one.rehearsed for one in workload.items if one.effect is effect)
    return effect_label(effect.value, would=would)


def effect_label(effect: str, *, would: bool) -> str:
    """An effect as people call it: ``would refuse`` for what is rehearsed."""
    if effect in {"unknown", "exempt"}:
        return effect
    verbs: Mapping[str, str] = {"refuse": "refuses", "change": "changes", "warn": "warns"}
    return f"would {effect}" if would else verbs[effect]


def _said(workload: AuditedWorkload) -> str:
    """What the rules say of ``workload``, for the script: rule, mode and effect of each finding, once each."""
    return ";".join(dict.fromkeys(f"{one.rule},{one.mode.value},{one.effect.value}" for one in workload.items))


def _groups(audit: Audit, environment: Environment) -> Iterator[OutcomeGroup]:
    """The workloads by outcome, the gravest first, as many as the page has room for."""
    by_outcome: dict[str, list[AuditedWorkload]] = {outcome: [] for outcome in _OUTCOMES}
    for one in audit.workloads:
        by_outcome[outcome_of(one)].append(one)
    row = environment.get_template("workload.html").module.row  # type: ignore[attr-defined]
    left = WORKLOADS_BUDGET
    for outcome, workloads in by_outcome.items():
        if not workloads:
            continue
        rows: list[Markup] = []
        devices = 0
        for one in sorted(workloads, key=lambda one: (-one.accelerators, one.key)):
            text = row(one, effect_label)
            left -= len(text.encode())
            if left < 0:
                break
            rows.append(text)
            devices += one.accelerators
        blocks = [Block(len(some), Markup("").join(some)) for some in _in_blocks(rows)]
        yield OutcomeGroup(outcome, len(workloads), len(rows), devices, blocks)


def _in_blocks(rows: Sequence[Markup]) -> Iterator[Sequence[Markup]]:
    return (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
