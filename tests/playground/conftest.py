"""A browser (any Chromium on the path) and a server that most files share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from playground import Playground
from tests.playground.ui.browsing import BROWSER_FLAGS, LIMITS, browser_path, served


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The browser's profile: it caches compiled scripts."""
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def browser(profile: Path) -> Iterator[Browser]:
    with sync_playwright() as running:
        own = running.chromium.launch_persistent_context(
            profile, executable_path=browser_path(), args=BROWSER_FLAGS
        )
        assert own.browser
        yield own.browser
        own.close()


@pytest.fixture(scope="session")
def lab(embedded: Playground) -> Playground:
    """The lab that the page is compared with."""
    return embedded


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app on the embedded model, for all files that need no server of their own: starting one
    takes longer than most tests."""
    flags = [str(word) for flag in LIMITS.items() for word in flag]
    log = tmp_path_factory.mktemp("server") / "log"
    with served(["app.py", "--port", "{port}", *flags], log) as address:
        yield address
