"""What people can do with the page: read it without its script, filter it with it, in either colours, on any screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from gpugate.webhook.audit.model import AuditedWorkload, most_severe
from gpugate.webhook.audit.ownership import divisions_of
from tests.browser.conftest import Open
from tests.shared import sample_audits

THIN = "\N{NARROW NO-BREAK SPACE}"
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
REALISTIC = sample_audits.realistic()
SHOWN = ".block > li:not([hidden])"
SEEN = ".outcome:not([hidden]) .block:not([hidden]) > li:not([hidden])"


def shown_names(page: Page, count: int) -> list[str]:
    """The names of the workloads that the filter leaves, once they are ``count``: it follows a click, not at once."""
    expect(page.locator(SEEN)).to_have_count(count)
    names: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".block > li:not([hidden])")]
            .filter((row) => !row.closest("[hidden]"))
            .map((row) => row.querySelector("span b").textContent)"""
    )
    return names


def names(wanted: Callable[[AuditedWorkload], bool]) -> list[str]:
    return sorted(one.name for one in REALISTIC.workloads if wanted(one))


def outcome(one: AuditedWorkload, rule: str | None = None, mode: str | None = None) -> str | None:
    said = [item for item in one.items if rule in {None, item.rule} and mode in {None, item.mode.value}]
    found = most_severe(said)
    return found.value if found else None


def control(page: Page, name: str) -> Locator:
    """One of the filter's controls, by the name that people see and hear."""
    return page.get_by_role("searchbox" if name == "Search" else "combobox", name=name)


def thin(number: int) -> str:
    return f"{number:,}".replace(",", THIN)


def count_of(text: str) -> int:
    return int(text.replace(THIN, ""))


def test_without_a_script_everything_is_there_and_opens(visit: Open) -> None:
    page = visit("realistic", java_script_enabled=False)
    rows = page.locator(".block > li")
    expect(rows).to_have_count(len(REALISTIC.workloads))
    expect(page.locator("#filter")).to_be_hidden()
    expect(page.locator("#theme")).to_be_hidden()
    text = page.locator("body").text_content() or ""
    for one in REALISTIC.workloads:
        assert one.name in text
        assert all(item.message in text and item.remedy in text for item in one.items)
    first = page.locator(".block details").first
    message = first.locator("li p").first
    expect(message).to_be_hidden()
    first.locator("summary").click()
    expect(message).to_be_visible()


VIEWS: dict[str, Callable[[AuditedWorkload], bool]] = {
    "team=recsys": lambda one: one.team == "recsys",
    "team=": lambda one: one.team == "",
    "namespace=speech": lambda one: one.namespace == "speech",
    "rule=numa": lambda one: outcome(one, "numa") is not None,
    "mode=Mutate": lambda one: outcome(one, mode="Mutate") is not None,
    "mode=in-force": lambda one: any(not item.rehearsed for item in one.items),
    "outcome=clean": lambda one: not one.items,
    "outcome=refuse": lambda one: outcome(one) == "refuse",
    "outcome=change&rule=host-memory": lambda one: outcome(one, "host-memory") == "change",
    "outcome=refuse&mode=DryRun&team=vision": lambda one: one.team == "vision" and outcome(one, mode="DryRun") == "refuse",
    "q=LORA+dev%2Fshm": lambda one: "lora" in one.name and any("/dev/shm" in item.message for item in one.items),
    "q=no-such-thing": lambda _: False,
    "team=no-such-team": lambda _: False,
}


def test_who_asks_for_what_is_read_without_a_script(visit: Open) -> None:
    page = visit("realistic", java_script_enabled=False)
    page.get_by_role("link", name="Owners", exact=True).click()
    for division in divisions_of(REALISTIC):
        table = page.get_by_role("table", name=f"GPUs and their hours by {division.what}, those with most GPUs first")
        expect(table).to_be_visible()
        lines = table.locator("tbody tr")
        assert lines.locator("th").all_inner_texts() == [value or "no owner" for value, _ in division.shares]
        assert [count_of(text) for text in lines.locator("td:nth-of-type(2)").all_inner_texts()] == [
            share.accelerators for _, share in division.shares
        ]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_just_the_workloads_that_it_names_and_counts_them(visit: Open, view: str) -> None:
    page = visit("realistic", fragment=f"#{view}")
    wanted = names(VIEWS[view])
    assert sorted(shown_names(page, len(wanted))) == wanted
    devices = sum(one.accelerators for one in REALISTIC.workloads if VIEWS[view](one))
    expect(page.locator("#found")).to_have_text(f"{len(wanted)} of 341 workloads, {thin(devices)} GPU{'' if devices == 1 else 's'}")
    expect(page.locator("#nothing")).to_be_visible(visible=not wanted)


@pytest.mark.parametrize(("name", "links_at_least"), [("realistic", 120), ("enforced", 40)])
def test_every_number_on_the_page_leads_to_as_many_workloads(visit: Open, name: str, links_at_least: int) -> None:
    page = visit(name)
    links = page.locator("a[data-f]").evaluate_all("links => links.map((one) => [one.textContent, one.getAttribute('href')])")
    assert len(links) >= links_at_least
    wrong = []
    for text, view in links:
        found = page.evaluate(
            """(view) => new Promise((done) => {
                const count = () => done(document.querySelectorAll(".block:not([hidden]) > li:not([hidden])").length);
                if (location.hash === view) { count(); return; }
                addEventListener("hashchange", count, { once: true });
                location.hash = view;
            })""",
            view,
        )
        if found != count_of(text):
            wrong.append((view, text, found))
    assert wrong == []


def test_a_number_leads_to_its_workloads_and_the_way_back_leads_back(visit: Open) -> None:
    page = visit("realistic")
    number = page.locator("h1 a").first
    wanted = count_of(number.text_content() or "")
    number.click()
    expect(page).to_have_url(re.compile("#mode=DryRun&outcome=refuse$"))
    expect(page.locator(SEEN)).to_have_count(wanted)
    expect(page.locator("#workloads h2")).to_be_in_viewport()
    expect(control(page, "Outcome")).to_have_value("=refuse")
    page.locator("#rules a[data-f='rule=numa']").first.click()
    numa = names(VIEWS["rule=numa"])
    assert sorted(shown_names(page, len(numa))) == numa
    page.go_back()
    expect(page).to_have_url(re.compile("outcome=refuse"))
    expect(page.locator(SEEN)).to_have_count(wanted)


def test_choices_and_words_filter_together_and_stand_in_the_address(visit: Open) -> None:
    page = visit("realistic")
    control(page, "Team").select_option("=speech")
    control(page, "Mode").select_option("=DryRun")
    control(page, "Search").fill("memory")
    expect(page).to_have_url(re.compile("#q=memory&mode=DryRun&team=speech$"))
    left = page.locator(SEEN).count()
    assert 0 < left < len(REALISTIC.workloads)
    before = shown_names(page, left)
    page.reload()
    assert shown_names(page, left) == before
    expect(control(page, "Search")).to_have_value("memory")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#found")).to_have_text(f"341 workloads, {thin(sum(one.accelerators for one in REALISTIC.workloads))} GPUs")
    expect(page).not_to_have_url(re.compile("#"))


@pytest.mark.parametrize("key", ["outcome", "rule", "team", "namespace"])
def test_the_numbers_beside_the_choices_are_those_of_the_view_that_they_would_give(visit: Open, key: str) -> None:
    page = visit("realistic", fragment="#mode=DryRun")
    expect(page.locator("[name=namespace] option").nth(1)).to_have_text(re.compile(r"\("))
    options = page.locator(f"[name={key}] option").evaluate_all("all => all.slice(1).map((one) => [one.value, one.textContent])")
    assert len(options) > 3
    for value, label in options:
        page.locator(f"[name={key}]").select_option(value)
        count = int(label.rpartition("(")[2].rstrip(")"))
        expect(page.locator("#found")).to_have_text(re.compile(rf"^{count} of 341 "))
        expect(page).to_have_url(re.compile(rf"{key}="))
        expect(page.locator(SEEN)).to_have_count(count)


def test_the_filter_is_told_to_those_who_listen(visit: Open) -> None:
    page = visit("realistic")
    found = page.get_by_role("status")
    expect(found).to_have_attribute("aria-live", "polite")
    before = found.text_content()
    control(page, "Rule").select_option("=vram")
    expect(found).not_to_have_text(before or "")


def test_the_keyboard_is_enough(visit: Open) -> None:
    page = visit("realistic")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the findings")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    control(page, "Search").focus()
    page.keyboard.type("pretrain")
    expect(page).to_have_url(re.compile("#q=pretrain$"))
    wanted = names(lambda one: "pretrain" in one.name or one.namespace == "llm-pretrain")
    assert sorted(shown_names(page, len(wanted))) == wanted
    row = page.locator(f"{SHOWN} summary").first
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator(f"{SHOWN} details").first).to_have_attribute("open", "")
    outline = row.evaluate("(one) => getComputedStyle(one).outlineStyle")
    assert outline == "solid"


def test_all_shown_workloads_open_and_close_together(visit: Open) -> None:
    page = visit("realistic", fragment="#outcome=refuse")
    page.get_by_role("button", name="Open all").click()
    expect(page.locator("details[open]", has=page.locator(".fix"))).to_have_count(len(names(VIEWS["outcome=refuse"])))
    page.get_by_role("button", name="Close all").click()
    expect(page.locator(".block details[open]")).to_have_count(0)


def ground(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_colours_follow_the_system_until_somebody_chooses(visit: Open) -> None:
    dark, light = visit("realistic", color_scheme="dark"), visit("realistic", color_scheme="light")
    assert ground(dark) != ground(light)
    button = dark.get_by_role("button", name="Colours")
    button.click()
    expect(button).to_have_text("○ Light")
    assert ground(dark) == ground(light)
    dark.reload()
    assert ground(dark) == ground(light)
    button.click()
    expect(button).to_have_text("● Dark")
    assert ground(dark) != ground(light)
    button.click()
    expect(button).to_have_text("◐ Auto")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["realistic", "empty", "hostile", "nodes"])
def test_no_page_is_wider_than_the_screen(visit: Open, name: str, width: int) -> None:
    page = visit(name, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.scrollWidth") <= width


@pytest.mark.parametrize("name", ["realistic", "empty", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_stands_in_the_way_of_those_who_cannot_see_or_point(visit: Open, name: str, scheme: Any) -> None:
    page = visit(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one, place) => { if (place < 12) one.open = true; })")
    page.evaluate(AXE)
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    violations = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found["violations"]]
    assert violations == []
    assert len(found["passes"]) > 15


def test_the_policy_of_the_page_stops_what_is_not_its_own(browser: Browser, files: Callable[[str], str]) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(files("hostile"))
        stopped = page.evaluate(
            """() => new Promise((done) => {
                const stopped = [];
                document.addEventListener("securitypolicyviolation", (event) => {
                    if (stopped.push(event.effectiveDirective) === 2) done([...stopped.sort(), typeof window.ran]);
                });
                const script = document.createElement("script");
                script.textContent = "window.ran = true";
                document.head.append(script);
                const picture = document.createElement("img");
                picture.src = "http://127.0.0.1:9/";
                document.body.append(picture);
            })"""
        )
        assert stopped == ["img-src", "script-src-elem", "undefined"]


def test_on_paper_the_findings_are_open_and_the_controls_are_gone(visit: Open) -> None:
    page = visit("realistic", fragment="#outcome=refuse", color_scheme="dark")
    page.emulate_media(media="print")
    expect(page.locator("#filter")).to_be_hidden()
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator(f"{SHOWN} .fix").first).to_be_visible()
    assert ground(page) == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    assert page.pdf()[:5] == b"%PDF-"


def test_nothing_moves_for_those_who_want_it_still(visit: Open) -> None:
    moving, still = visit("realistic", reduced_motion="no-preference"), visit("realistic", reduced_motion="reduce")
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert (moving.evaluate(behaviour), still.evaluate(behaviour)) == ("smooth", "auto")
