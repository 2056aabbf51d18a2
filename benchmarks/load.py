"""Measures the page under the load of a class: many visitors press Run for minutes.

    python benchmarks/load.py [--visitors 40] [--browsers 2] [--minutes 10] [--json FILE]

Visitors are Gradio clients, some of them real browsers. Each requests comparison after comparison
with a short pause between them, cancels one of five and leaves during one of ten. Afterwards every
finished comparison is repeated alone: the texts must be equal. Reported are errors, wrong results,
the time to the first token, how evenly the turns were shared, and the server's memory.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gradio_client import Client
from playwright.sync_api import Browser, sync_playwright

from benchmarks.page import machine
from playground import Playground
from playground.ui.compare.presets import FIRST
from tests.playground.ui.browsing import (
    BROWSER_FLAGS,
    browser_path,
    opened,
    ready,
    served,
    stored,
    text_of,
    wait,
)

SAMPLES = 20  # of the server's memory
PATIENCE = 60.0  # seconds that visitors have for their last comparison
PAUSE = 6.0  # most seconds between two comparisons of a visitor
PROMPTS = [
    "The old lighthouse keeper climbed",
    "In a small village by the sea",
    "The results of the experiment show",
    "My favourite recipe starts with",
    "Once there was a clever crow who",
]
RUNS: list[Any] = [
    "greedy",
    ["sample", {"top_p": 0.9}],
    ["sample", {"temperature": 1.3, "top_k": 40}],
    ["beam_search", {"num_beams": 3}],
    ["contrastive_search", {"top_k": 4, "penalty_alpha": 0.6}],
    "prompt_lookup",
]
BROWSER_RUNS = [list(run) for run in FIRST.cards]  # of a page that was just opened


@dataclass(frozen=True)
class Request:
    """One comparison."""

    prompt: str
    runs: list[Any]
    settings: dict[str, int]


@dataclass
class Visitor:
    """What one visitor saw."""

    number: int
    kind: str  # "client" or "browser"
    ends: Counter[str] = field(default_factory=Counter)
    first_token_s: list[float] = field(default_factory=list)
    finished: list[tuple[Request, list[str]]] = field(default_factory=list)  # with its texts
    errors: list[str] = field(default_factory=list)

    def plans(self, over: threading.Event) -> Iterator[tuple[Request, str]]:
        """Random comparisons and how they end, until the benchmark is over."""
        chance = random.Random(self.number)
        while not over.is_set():
            count = chance.randint(1, 3)
            settings = {"seed": chance.randrange(1000), "max_new_tokens": chance.randint(8, 24)}
            request = Request(chance.choice(PROMPTS), chance.sample(RUNS, count), settings)
            ends = ["finished", "cancelled", "left"]
            yield request, chance.choices(ends, weights=[7, 2, 1])[0]
            over.wait(chance.uniform(0, PAUSE))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--visitors", type=int, default=40)
    arguments.add_argument("--browsers", type=int, default=2, help="of the visitors")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--comparisons", type=int, default=8, help="at the same time")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    kinds = ["browser"] * options.browsers + ["client"] * (options.visitors - options.browsers)
    visitors = [Visitor(number, kind) for number, kind in enumerate(kinds)]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--comparisons", options.comparisons, "--boards", options.visitors]
        command = ["app.py", "--port", "{port}", *flags]
        with served(command, Path(folder) / "log") as address:
            Client(address, verbose=False).predict("Hello", ["greedy"], api_name="/compare")
            memory = put_load(address, visitors, options.minutes)
    result = {"machine": machine(), "minutes": options.minutes, "visitors": len(visitors)}
    result |= summary(visitors, memory)
    result["wrong results"] = wrong_results(visitors)
    for name, value in result.items():
        print(f"{name:<32} {value}")
    for error in [error for visitor in visitors for error in visitor.errors][:5]:
        print(error)
    if options.json:
        options.json.write_text(json.dumps({**result, "memory_MB": memory}, indent=2) + "\n")


def put_load(address: str, visitors: list[Visitor], minutes: float) -> list[float]:
    """Let all visitors use the server; returns samples of its memory, in MB."""
    over = threading.Event()
    visit = {"client": client_visits, "browser": browser_visits}
    threads = [
        threading.Thread(target=visit[visitor.kind], args=(address, visitor, over), daemon=True)
        for visitor in visitors
    ]
    for thread in threads:
        thread.start()
    memory = []
    for _ in range(SAMPLES):
        time.sleep(minutes * 60 / SAMPLES)
        memory.append(round(metric(address, "playground_process_resident_memory_bytes") / 2**20))
        done = sum(visitor.ends.total() for visitor in visitors)
        waiting = metric(address, "playground_comparisons_waiting")
        print(f"{done} comparisons, {waiting:.0f} waiting, {memory[-1]} MB", flush=True)
    over.set()
    end = time.monotonic() + PATIENCE
    for visitor, thread in zip(visitors, threads, strict=True):
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            visitor.errors.append(f"{visitor.kind} {visitor.number} still waits for an answer")
    return memory


def metric(address: str, name: str) -> float:
    """A value of the server's ``/metrics``."""
    text = urllib.request.urlopen(f"{address}metrics", timeout=30).read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


# Clients


def client_visits(address: str, visitor: Visitor, over: threading.Event) -> None:
    """Use the HTTP API until the benchmark is over."""
    client = Client(address, verbose=False)
    for request, end in visitor.plans(over):
        try:
            client_visit(client, visitor, request, end)
        except Exception:
            visitor.errors.append(traceback.format_exc(limit=2))
            end = "failed"
        visitor.ends[end] += 1
        if end == "left":
            client = Client(address, verbose=False)
    client.close()


def client_visit(client: Client, visitor: Visitor, request: Request, end: str) -> None:
    started, texts = time.monotonic(), None
    job = client.submit(request.prompt, request.runs, request.settings, api_name="/stream")
    for answer in job:
        if texts is None:
            visitor.first_token_s.append(time.monotonic() - started)
        texts = [run["text"] for run in answer]
        if end == "cancelled":
            job.cancel()
            return
        if end == "left":
            client.close()
            return
    if error := job.exception():
        raise error
    assert texts is not None
    visitor.finished.append((request, texts))


# Browsers


def browser_visits(address: str, visitor: Visitor, over: threading.Event) -> None:
    """Use the page until the benchmark is over."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        browser.new_context()
        plans = visitor.plans(over)
        while not over.is_set():
            try:
                tab_visits(browser, address, visitor, plans)
            except Exception:
                visitor.errors.append(traceback.format_exc(limit=-2))
                visitor.ends["failed"] += 1
        browser.close()


def tab_visits(
    browser: Browser, address: str, visitor: Visitor, plans: Iterator[tuple[Request, str]]
) -> None:
    """Use one tab until it is closed during a run."""
    with opened(browser, address) as page:
        page.set_default_timeout(300_000)
        ready(page)
        for request, end in plans:
            page.fill("#prompt textarea", request.prompt)
            for name, value in request.settings.items():
                page.fill(f"#shared-{name} input[type=number]", str(value))
                page.keyboard.press("Tab")
            started, before = time.monotonic(), stored(page, "feed")
            page.click("#run")
            wait(lambda before=before: stored(page, "feed") != before, seconds=300)
            page.wait_for_selector("#live .token", state="attached")
            visitor.first_token_s.append(time.monotonic() - started)
            if end == "left":
                break
            if end == "cancelled":
                page.click("#stop")
            page.wait_for_selector("#run:not([disabled])")
            if end == "finished":
                texts = [text_of(page, column) for column in range(len(BROWSER_RUNS))]
                visitor.finished.append((replace(request, runs=BROWSER_RUNS), texts))
            visitor.ends[end] += 1
        else:
            return
        visitor.ends["left"] += 1


# Results


def summary(visitors: list[Visitor], memory: list[float]) -> dict[str, Any]:
    ends = sum((visitor.ends for visitor in visitors), Counter())
    firsts = sorted(second for visitor in visitors for second in visitor.first_token_s)
    clients = [visitor for visitor in visitors if visitor.kind == "client"]
    turns = [visitor.ends.total() for visitor in clients]
    waits = [statistics.mean(visitor.first_token_s) for visitor in clients if visitor.first_token_s]
    half = len(memory) // 2
    return {
        "comparisons": ends.total(),
        **ends,
        "errors": sum(len(visitor.errors) for visitor in visitors),
        "first token, median s": round(statistics.median(firsts), 2),
        "first token, p95 s": round(firsts[int(0.95 * len(firsts))], 2),
        "turns per client": f"{min(turns)} to {max(turns)}",
        "mean wait per client, s": f"{min(waits):.1f} to {max(waits):.1f}",
        "memory MB, first and second half": [
            statistics.median(memory[2:half]),
            statistics.median(memory[half:]),
        ],
    }


def wrong_results(visitors: list[Visitor]) -> int:
    """Repeat every finished comparison alone; returns how many gave other texts."""
    lab = Playground()
    expected: dict[str, str] = {}
    wrong = 0
    for visitor in visitors:
        for request, texts in visitor.finished:
            for run, text in zip(request.runs, texts, strict=True):
                key = json.dumps([request.prompt, run, request.settings])
                if key not in expected:
                    choice = run if isinstance(run, str) else tuple(run)
                    [trace] = lab.compare(request.prompt, [choice], **request.settings)
                    expected[key] = trace.text
                if text != expected[key]:
                    wrong += 1
                    print(f"{key}\n  under load {text!r}\n  alone      {expected[key]!r}")
    return wrong


if __name__ == "__main__":
    main()
