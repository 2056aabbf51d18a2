"""Counts what four visitors do until they have seen what they came for: clicks, scrolls, seconds.

    python benchmarks/journeys.py [--json FILE]

A visitor scrolls whenever the next thing to press or to read is outside of the window. Seconds are
those of the page and the model, without time for reading. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Locator, Page, sync_playwright

from tests.playground.ui.browsing import BROWSER_FLAGS, browser_path, served

SUSPICIOUS = (
    "The lighthouse stands on a rock at the end of the bay. Every evening its keeper climbs the "
    "stairs, cleans the lamp and writes the weather into a book that nobody reads. "
) * 3
_VISIBLE = """element => {
    const { top, bottom, left, right } = element.getBoundingClientRect();
    const x = (left + right) / 2, y = Math.min(bottom, top + 20) - 2;
    return x >= 0 && x < innerWidth && y >= 0 && y < innerHeight
        && element.contains(document.elementFromPoint(x, y));
}"""


class Visitor:
    """Presses and reads, and counts."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.scrolls = 0

    def press(self, target: str | Locator) -> None:
        """Press an element, after scrolling to it if necessary."""
        found = self.see(target)
        found.click()
        self.clicks += 1

    def see(self, target: str | Locator, seconds: float = 60) -> Locator:
        """Wait for an element and scroll to it if necessary."""
        found = (self.page.locator(target) if isinstance(target, str) else target).first
        found.wait_for(state="visible", timeout=1000 * seconds)
        if not found.evaluate(_VISIBLE):
            found.evaluate("element => element.scrollIntoView({ block: 'nearest' })")
            self.scrolls += 1
        return found


def student(visitor: Visitor) -> None:
    """Runs the first page as it is and asks why a token was chosen."""
    visitor.press("#run")
    visitor.see("#live .column:nth-of-type(3) .token")
    visitor.press("#live .column:nth-of-type(3) .token:nth-of-type(3)")
    visitor.see("#step-view .decision .chosen")


def teacher(visitor: Visitor) -> None:
    """Shows an effect to a class, shows the search tree, and shares a link."""
    page = visitor.page
    visitor.press(page.get_by_role("button", name="The most probable text repeats itself"))
    visitor.see("#live .spot", seconds=120)
    visitor.press(page.get_by_role("tab", name="Tree"))
    visitor.see("#tree-view [role=treeitem]")
    visitor.press(page.get_by_role("button", name="Share", exact=True))
    visitor.see(page.get_by_text("Link copied"))


def engineer(visitor: Visitor) -> None:
    """Has a suspicious text and a key."""
    visitor.press(visitor.page.get_by_role("tab", name="Watermark"))
    visitor.see("#detect-pasted textarea").fill(SUSPICIOUS)
    visitor.see("#detected .verdict b")
    visitor.see("#detect-hashing_key input").fill("4711")
    visitor.page.keyboard.press("Tab")
    visitor.see(visitor.page.locator("#detected .about", has_text="4711"))


# Name, width, height, and what they do.
VISITORS: tuple[tuple[str, int, int, Callable[[Visitor], None]], ...] = (
    ("student", 1440, 900, student),
    ("teacher", 1440, 900, teacher),
    ("engineer", 1280, 720, engineer),
    ("student on a phone", 390, 844, student),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    results = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        served(["app.py", "--port", "{port}"], Path(folder) / "log") as address,
        sync_playwright() as started,
    ):
        browser = started.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        print(f"{'visitor':<20}{'clicks':>8}{'scrolls':>9}{'seconds':>9}")
        for name, width, height, journey in VISITORS:
            context = browser.new_context(
                viewport={"width": width, "height": height}, permissions=["clipboard-write"]
            )
            page = context.new_page()
            page.goto(f"{address}?__theme=light")
            page.wait_for_selector("#run:not([disabled])", timeout=120_000)
            visitor, start = Visitor(page), time.monotonic()
            journey(visitor)
            seconds = time.monotonic() - start
            results[name] = (visitor.clicks, visitor.scrolls, round(seconds, 1))
            print(f"{name:<20}{visitor.clicks:>8}{visitor.scrolls:>9}{seconds:>9.1f}")
            context.close()
        browser.close()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
