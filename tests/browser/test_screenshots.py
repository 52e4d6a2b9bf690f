"""Pictures of the page for people to look at, in build/screenshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import SCREENSHOTS, Open

REFUSED = "#mode=DryRun&outcome=refuse"
VIEWS: dict[str, dict[str, Any]] = {
    "light": {"name": "realistic"},
    "light-gpus": {"name": "realistic", "at": "gpus"},
    "light-idle": {"name": "realistic", "at": "idle"},
    "dark-idle": {"name": "realistic", "at": "idle", "color_scheme": "dark"},
    "narrow-idle": {"name": "realistic", "at": "idle", "width": 390, "height": 844},
    "light-gangs": {"name": "realistic", "at": "gangs"},
    "light-quotas": {"name": "realistic", "at": "quotas"},
    "light-workloads": {"name": "realistic", "fragment": REFUSED},
    "dark": {"name": "realistic", "color_scheme": "dark"},
    "dark-gpus": {"name": "realistic", "at": "gpus", "color_scheme": "dark"},
    "dark-workloads": {"name": "realistic", "fragment": REFUSED, "color_scheme": "dark"},
    "narrow": {"name": "realistic", "width": 390, "height": 844},
    "narrow-gpus": {"name": "realistic", "at": "gpus", "width": 390, "height": 844},
    "narrow-workloads": {"name": "realistic", "fragment": REFUSED, "width": 390, "height": 844},
    "500-nodes": {"name": "nodes", "at": "gpus", "height": 1300},
    "2000-nodes": {"name": "more-nodes", "at": "gpus"},
    "enforced": {"name": "enforced"},
    "empty": {"name": "empty"},
    "hostile": {"name": "hostile"},
    "ten-thousand": {"name": "large", "at": "workloads"},
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_is_taken(visit: Open, view: str) -> None:
    options = dict(VIEWS[view])
    at = options.pop("at", "")
    page = visit(**options)
    if at:
        page.locator(f"#{at}").evaluate("(section) => section.scrollIntoView({ behavior: 'instant' })")
    if "fragment" in options:
        page.locator(".block > li:not([hidden]) summary").first.click()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{view}.png"
    page.screenshot(path=file)
    assert file.stat().st_size > 10_000
