"""A real browser: whichever Chromium is on the path."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"the tests need a browser: none of {', '.join(NAMES)} is on the path"
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()
