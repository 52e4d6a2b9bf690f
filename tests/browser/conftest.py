"""Fixtures: one headless Chromium for the run, and tabs that tell on the page whatever it does wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from gpugate.webhook.audit.page.render import render
from tests.browser.chromium import MissingError, find
from tests.shared import sample_audits

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
AUDITS = {
    "realistic": sample_audits.realistic,
    "empty": sample_audits.empty,
    "enforced": sample_audits.enforced,
    "hostile": sample_audits.hostile,
    "nodes": sample_audits.many_nodes,
    "more-nodes": lambda: sample_audits.many_nodes(2000),
    "large": sample_audits.large,
}
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        chromium = find()
    except MissingError as error:
        pytest.fail(str(error))
    if chromium is None:
        pytest.fail("no Chromium here; `make browser` installs Debian's where it can, or says why not")
    with sync_playwright() as playwright:
        # Containers and root have no use for Chromium's sandbox, and the page is our own.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The address of the page of an audit, as a file."""
    folder = tmp_path_factory.mktemp("pages")

    def address(name: str) -> str:
        file = folder / f"{name}.html"
        if not file.exists():
            file.write_bytes(render(AUDITS[name]()))
        return file.as_uri()

    return address


@pytest.fixture
def visit(browser: Browser, files: Callable[[str], str]) -> Iterator[Open]:
    """Open the page of an audit, or an address, in a tab of its own; the test fails where the page complains or asks for more."""
    contexts = []
    complaints: list[str] = []

    def visit(name: str, *, width: int = 1280, height: int = 900, fragment: str = "", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        address = name if "://" in name else files(name)
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: complaints.extend(foreign(request.url, address)))
        page.goto(address + fragment)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def foreign(url: str, address: str) -> list[str]:
    """What to say of a request: nothing where it is for the page itself, or for what is in it."""
    return [] if url.partition("#")[0] == address or url.startswith("data:") else [f"request: {url}"]
