"""Ten thousand workloads: how long the page takes to open, and a filter to show what it leaves."""

from __future__ import annotations

import statistics
from typing import Any

import orjson
from playwright.sync_api import expect

from tests.browser.conftest import ROOT, Open

#: Bounds that a machine busy with other things keeps, too; what was measured is in build/page-speed.json. Milliseconds.
OPENS_WITHIN = 12_000
FILTERS_WITHIN = 1_500
FRAME_WITHIN = 400
APPLY = """(view) => new Promise((done) => {
    const begin = performance.now();
    const shown = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
    addEventListener("hashchange", shown, { once: true });
    location.hash = view;
})"""
SCROLL = """() => new Promise((done) => {
    const frames = [];
    let last = performance.now(), left = 60;
    const step = () => {
        const now = performance.now();
        frames.push(now - last);
        last = now;
        scrollBy({ top: 2000, behavior: "instant" });
        if (left-- > 0) requestAnimationFrame(step); else done(frames);
    };
    requestAnimationFrame(step);
})"""
VIEWS = (
    "team=team-07",
    "rule=stranding",
    "outcome=refuse&mode=DryRun",
    "q=training-run-04242",
    "q=memory+limit",
    "namespace=team-011",
    "mode=Enforce",
)


def test_ten_thousand_workloads_open_and_filter_in_time(visit: Open) -> None:
    page = visit("large")
    timing: dict[str, float] = page.evaluate(
        """() => {
            const load = performance.getEntriesByType("navigation")[0];
            const paint = performance.getEntriesByName("first-contentful-paint")[0];
            return { firstPaint: paint.startTime, loaded: load.loadEventEnd, elements: document.querySelectorAll("*").length };
        }"""
    )
    filters: dict[str, float] = {}
    for view in VIEWS:
        filters[view] = page.evaluate(APPLY, view)
    expect(page.locator("#found")).to_have_text("10_000 of 10_000 workloads, 45_000 GPUs".replace("_", "\N{NARROW NO-BREAK SPACE}"))
    # The numbers beside the choices follow once the list is shown.
    expect(page.locator("[name=namespace] option").nth(1)).to_have_text("team-000 (50)")
    frames: list[float] = page.evaluate(SCROLL)
    figures: dict[str, Any] = timing | {
        "filters": filters,
        "medianFilter": statistics.median(filters.values()),
        "medianFrame": statistics.median(frames),
        "longestFrame": max(frames),
    }
    file = ROOT / "build" / "page-speed.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    print(file.read_text("utf-8"))
    assert timing["loaded"] < OPENS_WITHIN
    assert max(filters.values()) < FILTERS_WITHIN
    # The longest frame is the machine's as often as the page's.
    assert statistics.median(frames) < FRAME_WITHIN
