"""A real browser, whichever Chromium is on the path, and the page it is on."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from playground import Playground
from tests.playground.browsing import LIMITS, served

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


@pytest.fixture(scope="session")
def lab(embedded: Playground) -> Playground:
    """What the real page is held against."""
    return embedded


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real page on the embedded model, for every file that needs no server of its own: to
    start one takes longer than most tests."""
    flags = [str(word) for flag in LIMITS.items() for word in flag]
    log = tmp_path_factory.mktemp("server") / "log"
    with served(["app.py", "--port", "{port}", *flags], log) as address:
        yield address
