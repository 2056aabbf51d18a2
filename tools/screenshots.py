"""Takes the screenshots of README and documentation from the real page: ``make screenshots``.

Starts the page on the embedded model, drives it in headless Chromium and writes WebP files to
``docs/images``.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

# The script runs from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.playground.ui.browsing import BROWSER_FLAGS, ROOT, browser_path, served

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1400, "height": 1000}
LARGEST = 200_000  # bytes of one file
MINUTE = 60_000  # milliseconds


def run_preset(page: Page, title: str) -> None:
    """Run an example to its end."""
    page.wait_for_selector("#run:not([disabled])", timeout=2 * MINUTE)
    page.get_by_role("button", name=title, exact=True).click()
    page.wait_for_selector("#stop:not([disabled])", timeout=MINUTE)
    page.wait_for_selector("#run:not([disabled])", timeout=5 * MINUTE)


def open_tab(page: Page, title: str) -> None:
    """Open a page, or a tab of the dock."""
    page.get_by_role("tab", name=title, exact=True).click()
    page.wait_for_timeout(2000)


def save(page: Page, name: str) -> None:
    """Save the screen, from the top of the page."""
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(1, 1)  # no card of candidates over the screen
    page.wait_for_timeout(500)
    shot = Image.open(io.BytesIO(page.screenshot()))
    for quality in range(90, 20, -10):
        shot.save(IMAGES / f"{name}.webp", quality=quality, method=6)
        if (IMAGES / f"{name}.webp").stat().st_size < LARGEST:
            return
    raise RuntimeError(f"{name}.webp is larger than {LARGEST} bytes")


def main() -> None:
    """Take all screenshots."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(["app.py", "--port", "{port}"], Path(folder) / "log") as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]  # a TypedDict
        page.goto(address)
        page.wait_for_selector("#run:not([disabled])", timeout=5 * MINUTE)
        run_preset(page, "The most probable text repeats itself")
        page.locator("#live .token").nth(5).click()
        page.keyboard.press("Escape")  # closes the card of candidates
        open_tab(page, "Step")
        save(page, "compare")
        run_preset(page, "Beams look ahead")
        open_tab(page, "Tree")
        save(page, "tree")
        run_preset(page, "A watermark you cannot see")
        open_tab(page, "Watermark")
        save(page, "watermark")
        open_tab(page, "Speculative")
        page.click("#spec-race")
        page.wait_for_selector("#spec-stop:not([disabled])", timeout=MINUTE)
        page.wait_for_selector("#spec-stop[disabled]", timeout=10 * MINUTE)
        save(page, "speculative")
        browser.close()


if __name__ == "__main__":
    main()
