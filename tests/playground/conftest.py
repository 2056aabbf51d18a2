"""A real browser, whichever Chromium is on the path, and the page it is on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from playground import Playground
from tests.playground.ui.browsing import LIMITS, served

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the browser keeps the page's scripts, compiled: to compile them takes longer than to
    run them."""
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def browser(profile: Path) -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"the tests need a browser: none of {', '.join(NAMES)} is on the path"
    with sync_playwright() as running:
        own = running.chromium.launch_persistent_context(profile, executable_path=found, args=QUIET)
        assert own.browser
        yield own.browser
        own.close()


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
