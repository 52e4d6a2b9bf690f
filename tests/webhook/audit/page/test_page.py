"""The page that is made from an audit: its numbers, its harmlessness, its size, and that it is always the same."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, Effect, Exemption, Item, NodeSummary, PolicyLine, ShapeSummary
from gpugate.webhook.audit.ownership import divisions_of
from gpugate.webhook.audit.page.format import hours, number
from gpugate.webhook.audit.page.render import MOST_FINDINGS, asset, content_security_policy, outcome_of, render, waiting
from gpugate.webhook.audit.page.sections import MOST_LINES, exemptions_of, gangs_of, stocks_of
from gpugate.webhook.audit.page.tiles import MOST_TILES, tiles_of
from gpugate.webhook.audit.totals import figures_of
from tests.shared import sample_audits
from tests.shared.sample_audits import GIB, item, workload

#: Elements that have no end, and those whose end may be left out.
VOID = {"meta", "link", "br", "input", "col", "hr", "img"}
OPTIONAL = {"li", "p"}


class Page(HTMLParser):
    """A page, taken apart: its elements, its text, and what is not closed as it should be."""

    def __init__(self, html: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(html.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in OPTIONAL:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts).replace("\N{NARROW NO-BREAK SPACE}", "_"))

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


AUDITS = {
    "realistic": sample_audits.realistic,
    "empty": sample_audits.empty,
    "enforced": sample_audits.enforced,
    "hostile": sample_audits.hostile,
    "many nodes": sample_audits.many_nodes,
}


@pytest.fixture(params=AUDITS, ids=list(AUDITS))
def audit(request: pytest.FixtureRequest) -> Audit:
    made: Audit = AUDITS[request.param]()
    return made


def only(*items: Item, exemption: Exemption | None = None, devices: int = 8, policies: tuple[PolicyLine, ...] = ()) -> Audit:
    return dataclasses.replace(
        sample_audits.empty(), workloads=(workload("w", *items, devices=devices, exemption=exemption),), policies=policies
    )


def headline(audit: Audit) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", render(audit).decode(), re.DOTALL)
    assert found
    return Page(found[1].encode()).text.strip()


def test_the_same_audit_gives_the_same_bytes(audit: Audit) -> None:
    assert render(audit) == render(audit)


def test_the_same_audit_gives_the_same_bytes_in_another_process_with_another_hash_seed() -> None:
    code = (
        "import hashlib; from tests.shared.sample_audits import realistic; from gpugate.webhook.audit.page.render import render;"
        "print(hashlib.sha256(render(realistic())).hexdigest())"
    )
    seeds = ("1", "2")
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in seeds
    }
    assert digests == {hashlib.sha256(render(sample_audits.realistic())).hexdigest() + "\n"}


def test_every_element_is_closed_and_every_id_is_given_once(audit: Audit) -> None:
    page = Page(render(audit))
    assert page.wrong == []
    assert page.open == []
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []


def test_every_link_and_label_leads_to_something_on_the_page(audit: Audit) -> None:
    page = Page(render(audit))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    targets = {str(link["href"]) for link in page.all("a")}
    labels = {name for _, attributes in page.elements for name in str(attributes.get("aria-labelledby") or "").split()}
    assert {target[1:] for target in targets} <= ids
    assert all(target.startswith("#") for target in targets)
    assert labels <= ids


def test_nothing_is_loaded_from_anywhere(audit: Audit) -> None:
    page = Page(render(audit))
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "action", "style", "ping"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert [str(link["href"])[:5] for link in page.all("link")] == ["data:"]
    assert not re.search(r"url\(|@import|https?:", asset("page.css"))
    assert not re.search(r"\beval\b|Function\(|innerHTML|insertAdjacentHTML|document\.write|fetch\(|https?:", asset("page.js"))


@pytest.mark.parametrize("html", [render(sample_audits.realistic()), waiting()], ids=["page", "waiting"])
def test_the_policy_of_the_page_names_just_its_own_style_and_script(html: bytes) -> None:
    policy = [one for one in Page(html).all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert [one["content"] for one in policy] == [content_security_policy()]
    for tag in ("style", "script"):
        for body in re.findall(rf"<{tag}>(.*?)</{tag}>", html.decode(), re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in content_security_policy()
    assert "unsafe" not in content_security_policy()
    assert content_security_policy().startswith("default-src 'none'")


def test_hostile_names_and_messages_stay_text() -> None:
    html = render(sample_audits.hostile())
    page = Page(html)
    assert list(page.all("script")) == [{}]
    assert html.count(b"<script") == 1
    assert "<script>alert(1)</script>" in page.text
    assert "{{7*7}}" in page.text
    for deceiving in ("\u202e", "\u2066", "\x00", "\x1b"):
        assert deceiving not in html.decode()


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    page = Page(render(only(item(0)._replace(message="x" * 12_345))))
    assert "x" * 2000 in page.text
    assert "x" * 2001 not in page.text
    assert "(10_345 more characters)" in page.text


def test_a_workload_with_very_many_findings_shows_some_and_counts_the_rest() -> None:
    said = tuple(item(4)._replace(path=f"spec.containers[{place}]") for place in range(MOST_FINDINGS + 3))
    page = Page(render(only(*said)))
    assert "3 more findings are not listed" in page.text
    assert page.text.count("would change") == MOST_FINDINGS + 1  # and once beside the name


def test_the_sums_are_those_of_the_records() -> None:
    audit = sample_audits.realistic()
    figures = figures_of(audit)
    assert figures.all.workloads == len(audit.workloads)
    rehearsed_refusals = [
        one for one in audit.workloads if any(said.rehearsed and said.effect is Effect.REFUSE for said in one.items)
    ]
    assert figures.all.rehearsed["refuse"] == len(rehearsed_refusals) > 0
    assert figures.all.refused_rehearsed == sum(one.accelerators for one in rehearsed_refusals)
    assert figures.teams_refused == len({one.team for one in rehearsed_refusals} - {""})
    for groups in (figures.teams, figures.namespaces):
        assert sum(one.workloads for one in groups.values()) == len(audit.workloads)
        for effect in Effect:
            assert sum(one.rehearsed[effect.value] for one in groups.values()) == figures.all.rehearsed[effect.value]
            assert sum(one.in_force[effect.value] for one in groups.values()) == figures.all.in_force[effect.value]
        assert sum(one.refused_rehearsed for one in groups.values()) == figures.all.refused_rehearsed
    for rule, tally in figures.rules.items():
        assert tally.workloads == sum(1 for one in audit.workloads if any(said.rule == rule for said in one.items))
        assert tally.workloads >= max(sum(tally.rehearsed.values()), sum(tally.in_force.values()))


def test_rules_stand_in_the_order_of_the_catalogue_and_those_without_findings_are_there() -> None:
    figures = figures_of(only(item(1), policies=(PolicyLine("p", 1, 0, (("vram", "DryRun"), ("unheard-of", "Warn")), ""),)))
    assert list(figures.rules) == ["vram", "stranding", "unheard-of"]
    assert list(figures_of(sample_audits.realistic()).rules) == [rule for rule in BY_ID if rule in sample_audits.MODES]


def test_a_workload_counts_by_the_gravest_and_what_is_in_force_is_counted_apart() -> None:
    said = (item(4), item(0), item(6), item(8, Mode.MUTATE)._replace(effect=Effect.WARN))
    figures = figures_of(only(*said, devices=8))
    assert dict(figures.all.rehearsed) == {"refuse": 1}
    assert dict(figures.all.in_force) == {"change": 1}
    assert dict(figures.rules["host-memory"].rehearsed) == {"refuse": 1}
    assert (figures.all.refused_rehearsed, figures.all.refused_in_force) == (8, 0)


@pytest.mark.parametrize(
    ("audit", "said"),
    [
        (sample_audits.empty(), "No workload requests GPUs."),
        (only(item(0)), "Enforcing would refuse 1 of 1 workload of 1 team (8 GPUs) and change none."),
        (only(item(4)), "Enforcing would refuse none of 1 workload and change 1."),
        (
            only(policies=(PolicyLine("p", 1, 0, (("numa", "DryRun"),), ""),)),
            "Enforcing would refuse and change nothing: the one workload follows the rules in DryRun.",
        ),
        (only(item(8)), "All rules are active. Re-creating this one workload would refuse 1 and change none."),
        (
            only(item(0), exemption=Exemption(("gang",), "why", "me", "", "active")),
            "Enforcing would refuse 1 of 1 workload of 1 team (8 GPUs) and change none; 1 is exempt.",
        ),
    ],
)
def test_the_headline_says_what_enforcing_would_do(audit: Audit, said: str) -> None:
    assert headline(audit) == said


def test_the_headline_has_the_numbers_of_the_records_and_leads_to_the_workloads() -> None:
    audit = sample_audits.realistic()
    figures = figures_of(audit)
    refuse, change = figures.all.rehearsed["refuse"], figures.all.rehearsed["change"]
    assert headline(audit) == (
        f"Enforcing would refuse {refuse} of {len(audit.workloads)} workloads of {figures.teams_refused} teams"
        f" ({figures.all.refused_rehearsed} GPUs) and change {change}; 2 are exempt."
    )
    html = render(audit).decode()
    assert f'href="#workloads" data-f="mode=DryRun&amp;outcome=refuse" aria-label="{refuse} workloads' in html


def test_columns_and_figures_are_those_of_the_rules_that_there_are() -> None:
    page = Page(render(sample_audits.enforced())).text
    assert "enforcing would" not in page
    assert "In force on re-creation" in page
    total = figures_of(sample_audits.enforced()).all
    assert f"Would be refused{total.in_force['refuse']}{total.refused_in_force} GPUs affected" in page
    rehearsed = Page(render(only(item(0)))).text
    assert "enforcing would" in rehearsed
    assert "on re-creation" not in rehearsed


def test_every_workload_is_there_without_a_script_with_each_finding_its_path_and_its_fix() -> None:
    audit = sample_audits.realistic()
    text = Page(render(audit)).text
    for one in audit.workloads:
        assert f"{one.kind} {one.namespace}/{one.name}" in text
        for said in one.items:
            assert said.message in text
            assert said.path in text
            assert said.remedy in text


def test_every_line_of_the_other_sections_is_there() -> None:
    audit = sample_audits.realistic()
    text = Page(render(audit)).text
    for gang in audit.gangs:
        assert f"{gang.namespace}/{gang.name}" in text
        assert gang.reason in text
    for line in audit.queues:
        assert line.queue in text
        assert line.stopped in text
    for policy in audit.policies:
        assert policy.problem in text
    for shape in audit.shapes:
        assert shape.why_stranded in text
        for node in shape.nodes:
            assert node.name in text
    for remark in audit.remarks:
        assert remark in text
    for one in audit.workloads:
        if one.exemption:
            assert one.exemption.reason in text
            assert one.exemption.owner in text


def test_who_asks_for_what_stands_in_a_table_for_each_thing_told() -> None:
    html = render(sample_audits.realistic()).decode()
    section = re.findall(r'<section id="owners".*?</section>', html, re.DOTALL)[0]
    assert re.findall(r"<thead><tr><th scope=\"col\">(\w+)</th>", section) == ["Owner", "Project"]
    (division, _) = divisions_of(sample_audits.realistic())
    for owner, share in division.shares:
        name = f"<bdi>{owner}</bdi>" if owner else '<i class="dim">no owner</i>'
        numbers = (number(share.workloads), number(share.accelerators), hours(share.so_far), number(share.without_start))
        cells = "".join(f'<td class="num">{one}</td>' for one in (*numbers, hours(share.until_end), number(share.without_end)))
        assert f'<tr><th scope="row">{name}</th>{cells}</tr>' in section


def test_an_empty_audit_says_so_in_every_section() -> None:
    html = render(sample_audits.empty()).decode()
    sections = re.findall(r'<section id="([a-z]+)".*?</section>', html, re.DOTALL)
    assert sections == [
        "summary",
        "rules",
        "teams",
        "namespaces",
        "owners",
        "gpus",
        "idle",
        "gangs",
        "memory",
        "quotas",
        "exemptions",
        "policies",
        "workloads",
    ]
    for section in re.findall(r"<section id=.*?</section>", html, re.DOTALL)[1:]:
        assert 'class="empty"' in section


def test_what_needs_somebody_comes_first() -> None:
    audit = sample_audits.realistic()
    gangs = gangs_of(audit)
    assert [one.gang.state for one in gangs.unfinished] == ["stuck", "stuck", "starting", "queued"]
    assert gangs.held_by_stuck == 128
    assert gangs.unfinished[0].since == "2026-03-02T05:10:00Z"
    assert gangs.unfinished[0].lasted == "4\N{NARROW NO-BREAK SPACE}h 20\N{NARROW NO-BREAK SPACE}min"
    assert [one.state for one in exemptions_of(audit)] == ["expired", "refused", "soon", "active"]


def test_more_lines_than_a_table_has_are_counted_in_words() -> None:
    audit = sample_audits.empty()
    audit = dataclasses.replace(
        audit,
        workloads=tuple(workload(f"w{place}", item(0), namespace=f"n{place:04d}") for place in range(MOST_LINES + 7)),
        remarks=tuple(f"remark {place}" for place in range(MOST_LINES + 2)),
    )
    text = Page(render(audit)).text
    assert "7 more namespaces are counted above" in text
    assert "2 more remarks are counted above" in text


def test_the_tiles_of_a_node_have_a_square_for_each_accelerator() -> None:
    shape = ShapeSummary("H100", "nvidia.com/gpu", (NodeSummary("n", 8, 5, 1, 100, 90, 120, 1000, 500),), "memory")
    (tile,) = tiles_of(shape)
    assert [one.count("z") for one in (tile.held, tile.idle, tile.stranded)] == [5, 2, 1]
    assert (tile.memory, tile.cpu) == (90.0, 50.0)
    assert tile.title == (
        "n: 8 GPUs: 5 held, 2 idle, 1 stranded; memory 90_B of 100_B requested; CPU 0.5 of 1 requested".replace(
            "_", "\N{NARROW NO-BREAK SPACE}"
        )
    )


def test_more_held_than_there_is_draws_no_more_than_there_is() -> None:
    (tile,) = tiles_of(ShapeSummary("H100", "d", (NodeSummary("n", 4, 6, 3, 0, 5, 5, 0, 5),), ""))
    assert [one.count("z") for one in (tile.held, tile.idle, tile.stranded)] == [4, 0, 0]


def test_alike_nodes_share_a_tile_where_there_are_too_many() -> None:
    nodes = tuple(NodeSummary(f"n{place}", 8, place % 3, 0, 100, 50, 50, 10, 5) for place in range(MOST_TILES + 1))
    tiles = tiles_of(ShapeSummary("H100", "d", nodes, ""))
    assert [one.label for one in tiles] == [f"{count} \N{MULTIPLICATION SIGN}" for count in (201, 200, 200)]
    assert all(one.memory == 50.0 for one in tiles)


def test_many_nodes_of_many_shapes_leave_the_page_small() -> None:
    audit = sample_audits.many_nodes(500)
    audit = dataclasses.replace(audit, shapes=tuple(audit.shapes[0]._replace(title=f"shape {place}") for place in range(20)))
    html = render(audit)
    assert len(html) < 1_500_000
    assert [len(one.tiles) for one in stocks_of(audit)[:2]] == [500, len(tiles_of(audit.shapes[1], 0))]
    assert "440 more nodes are counted above" in Page(html).text


def test_ten_thousand_workloads_with_two_findings_each_are_all_listed_in_less_than_12_mb() -> None:
    html = render(sample_audits.large())
    assert len(html) < 12_000_000
    assert html.count(b"<li data-t=") == 10_000
    assert b"not listed" not in html


def test_what_there_is_no_room_for_is_counted_and_the_gravest_are_listed_first() -> None:
    long = item(4)._replace(message="m" * 10_000, remedy="r" * 10_000)
    audit = sample_audits.empty()
    audit = dataclasses.replace(
        audit, workloads=(*(workload(f"w{place:04d}", long) for place in range(3000)), workload("z", item(0)), workload("zz"))
    )
    html = render(audit)
    page = Page(html)
    listed = html.count(b"<li data-t=")
    assert len(html) < 12_000_000
    assert 1000 < listed < 3000
    assert f"{listed // 1000}_{listed % 1000:03d} of 3_002 workloads are listed" in page.text
    assert "team-a/z" in page.text
    assert "1 more without findings are not listed" in page.text
    assert figures_of(audit).all.workloads == 3002


def test_an_outcome_is_the_gravest_and_exempt_is_graver_than_nothing() -> None:
    assert outcome_of(workload("w")) == "clean"
    assert outcome_of(workload("w", item(0)._replace(effect=Effect.EXEMPT))) == "exempt"
    assert outcome_of(workload("w", item(0)._replace(effect=Effect.EXEMPT), item(9))) == "warn"


def test_amounts_are_written_as_people_read_them() -> None:
    html = render(sample_audits.realistic()).decode()
    for text in ("47.2_TiB", "4.88_TiB", "1_536", "31.5"):
        assert text.replace("_", "\N{NARROW NO-BREAK SPACE}") in html
    assert str(2015 * GIB) not in html
