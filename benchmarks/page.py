"""Measures the page in a real browser: start, first token, and the delay of streamed steps.

    python benchmarks/page.py [--columns 4 6] [--rates 10 20] [--steps 50 300] [--json FILE]

First the real page with the embedded model, then a scripted playground that emits steps at a fixed
rate (``scripted.py``). Browser and server share a clock: the delay of a step is the time from its
creation on the server to the end of the frame that shows it. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.playground.ui.browsing import BROWSER_FLAGS, browser_path, running, served

PROMPT = "Once upon a time, in a small village by the sea, there lived an old fisherman who"
READY = "#run:not([disabled])"
WATCH = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--columns", type=int, nargs="*", default=[4, 6])
    arguments.add_argument("--rates", type=int, nargs="*", default=[10, 20])
    arguments.add_argument("--steps", type=int, nargs="*", default=[50, 300])
    arguments.add_argument("--repeat", type=int, default=5, help="visits to the real page")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    print(result["machine"])
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        result["browser"] = f"Chromium {browser.version}"
        if options.repeat:
            result["page"] = real(browser, options.repeat)
            show(result["page"], "The real page")
        if options.columns:
            result |= scripted(browser, options)
            table(result["streams"])
            show(result["stop"], "Stop, at 20 scripted steps a second")
        browser.close()
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def machine() -> str:
    """Describe the machine and its load, as other programs distort the measurement."""
    cpu = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.split(":", 1)[1].strip() for line in cpu.splitlines() if "Model name" in line]
    name = names[0] if names else platform.processor()
    return f"{platform.system()} {platform.machine()}, {name}, {os.cpu_count()} cores, {load()}"


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


@contextmanager
def visit(browser: Browser, address: str) -> Iterator[tuple[Page, CDPSession]]:
    """Open the page with an empty browser cache; yield it with a developer-tools session."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    tools = context.new_cdp_session(page)
    tools.send("Network.enable")
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time of its thread
    page.goto(address, wait_until="commit")
    yield page, tools
    context.close()


# --- the real page -------------------------------------------------------------------


def real(browser: Browser, repeat: int) -> dict[str, Any]:
    """Measure several visits, after one that warms up the model."""
    with serving("app.py", "--port", "{port}") as address:
        return summary([visited(browser, address) for _ in range(repeat + 1)][1:])


@contextmanager
def serving(*command: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, served(command, Path(folder) / "log") as address:
        yield address


def summary(visits: list[dict[str, float]]) -> dict[str, Any]:
    median = {name: statistics.median(each[name] for each in visits) for name in visits[0]}
    worst = {name: max(each[name] for each in visits) for name in visits[0]}
    return {"visits": len(visits), "load": load(), "median": median, "worst": worst}


def visited(browser: Browser, address: str) -> dict[str, float]:
    """Measure one visit: load the page, start a run and stop it."""
    with visit(browser, address) as (page, tools):
        sizes: list[float] = []
        tools.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        usable = page.wait_for_function(f"document.querySelector('{READY}') && performance.now()")
        start = {"requests": len(sizes), "kB": sum(sizes) / 1000, "usable_ms": usable.json_value()}
        start["first_paint_ms"] = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        page.evaluate(WATCH)
        page.fill("#prompt textarea", PROMPT)
        page.fill("#shared-max_new_tokens input[type=number]", "200")
        page.keyboard.press("Tab")
        page.wait_for_timeout(1000)
        page.evaluate("watched.clear()")
        with running(page):
            page.wait_for_function("watched.tokens > 8")
            page.click("#stop")
        return {**start, **page.evaluate("watched.times()")}


# --- scripted streams ----------------------------------------------------------------


def scripted(browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    kinds = list(itertools.product(options.columns, options.rates, options.steps))
    with serving("benchmarks/scripted.py", "{port}") as address:
        streams = [streamed(browser, address, *kind) for kind in kinds]
        stops = [stopped(browser, address) for _ in range(5)]
    return {"streams": streams, "stop": summary(stops)}


def stopped(browser: Browser, address: str) -> dict[str, float]:
    with visit(browser, address) as (page, _):
        page.wait_for_selector(READY)
        page.fill("#prompt textarea", "20 steps a second, 1000 steps")
        page.evaluate(WATCH)
        with running(page):
            page.wait_for_function("watched.tokens > 100")
            page.click("#stop")
        times: dict[str, float] = page.evaluate("watched.times()")
    return times


def streamed(browser: Browser, address: str, columns: int, rate: int, steps: int) -> dict[str, Any]:
    """Measure one stream from Run to its end in the browser."""
    with visit(browser, address) as (page, tools):
        page.wait_for_selector(READY)
        while page.locator(".card-open").count() < columns:
            page.click("#add")
        while page.locator(".card-open").count() > columns:
            page.locator(".card-open").last.click()
            page.get_by_role("button", name="Remove", exact=True).click()
        used(page)
        page.fill("#prompt textarea", f"{rate} steps a second, {steps} steps")
        page.wait_for_timeout(500)
        page.evaluate(WATCH)
        wire: list[int] = []
        tools.on("Network.dataReceived", lambda event: wire.append(event["dataLength"]))
        before = measured(tools)
        with running(page):
            pass
        seen, after = page.evaluate("watched.stream()"), measured(tools)
    delays = sorted(seen.pop("delays"))
    emitted = steps * (columns - 1 + 8)  # one column has four beams of two candidates each
    return {
        "columns": columns,
        "rate": rate,
        "steps": steps,
        "delay_ms": statistics.median(delays),
        "delay_ms_95": delays[int(len(delays) * 0.95)],
        "delay_ms_most": delays[-1],
        "dropped": emitted - seen.pop("known"),
        **seen,
        "kB_step": sum(wire) / 1000 / steps,
        "busy": (after["TaskDuration"] - before["TaskDuration"]) / (steps / rate),
        "script_s": after["ScriptDuration"] - before["ScriptDuration"],
        "layout_s": sum(after[n] - before[n] for n in ("LayoutDuration", "RecalcStyleDuration")),
        "load": os.getloadavg()[0],
    }


def used(page: Page) -> None:
    """Run once and draw the figures: a used page is slower than a new one."""
    page.fill("#prompt textarea", "20 steps a second, 10 steps")
    page.get_by_role("tab", name="Charts").click()
    with running(page):
        pass
    page.wait_for_timeout(1000)
    page.get_by_role("tab", name="Step", exact=True).click()
    page.wait_for_timeout(1000)


def measured(tools: CDPSession) -> dict[str, float]:
    return {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}


# --- output -----------------------------------------------------------------


def show(measured: dict[str, Any], title: str) -> None:
    print(f"\n{title}, {measured['visits']} visits, {measured['load']}: median, worst")
    for name, value in measured["median"].items():
        print(f"  {name:<20}{value:>8.0f}{measured['worst'][name]:>8.0f}")


def table(streams: list[dict[str, Any]]) -> None:
    names = [*streams[0]]
    print("\nScripted steps")
    rows = [names, *([_short(stream[name]) for name in names] for stream in streams)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)))


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.3g}"


if __name__ == "__main__":
    main()
