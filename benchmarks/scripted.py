"""Serves the page with a playground that emits steps at a fixed rate, to measure the page alone.

    python benchmarks/scripted.py PORT

The prompt sets rate and length: `20 steps a second, 300 steps`. Steps are as large as those of a
real model: two processors, eighteen candidates, and one column of four beams with their pruned
candidates. Every step carries its creation time, which a browser on the same machine can compare.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformers import GenerationConfig

from engine.run_control import RunControl
from engine.settings import Limits
from engine.trace import (
    Candidate,
    Distribution,
    Step,
    Stop,
    Tick,
    Token,
    Trace,
    Update,
)
from engine.trace import Sequence as Returned
from engine.trie.backends import BackendStatus
from playground import generation_configs
from playground.ui.page import build
from playground.ui.shared.model_loading import Labs
from strategies import find, registered

WORDS = (" the", " cat", " sat", " on", " a", " mat", " and", " watched", " every", " bird", ".")
KEPT, CUT, BEAMS = 12, 6, 4
SHARE = 1 / sum(1 / (place + 1) for place in range(KEPT + CUT))


class Lab:
    """The part of `Playground` that the page uses; the last column has beams."""

    model = SimpleNamespace(
        name="scripted", module=SimpleNamespace(generation_config=GenerationConfig())
    )

    def offered(self) -> Any:
        """Return every strategy."""
        return registered()

    backend_status = BackendStatus("scripted", None, (), ())

    def defaults(self, strategy: str) -> dict[str, Any]:
        """Return the defaults of a strategy's settings."""
        return {name: known.default for name, known in find(strategy).own_settings.items()}

    def configuration(self, choice: tuple[str, dict[str, Any]], **shared: Any) -> GenerationConfig:
        """Return the generation config of a run."""
        return generation_configs.configured(GenerationConfig(), find(choice[0]), choice[1])

    def parse(self, prompt: str, choices: Sequence[Any], **shared: Any) -> None:
        """Accept every request."""

    def stream(
        self, prompt: str, runs: Sequence[Any], *, stop: RunControl, **shared: Any
    ) -> Iterator[Update]:
        """Emit steps at the rate in the prompt."""
        rate, length = map(int, re.findall(r"\d+", prompt))
        return written(len(runs), rate, length, stop)


def written(columns: int, rate: int, length: int, stop: RunControl) -> Iterator[Update]:
    """Yield the updates of all columns, step by step, each at its time."""
    steps: list[list[Step]] = [[] for _ in range(columns)]
    leads: list[list[int]] = [[] for _ in range(columns)]
    began = time.monotonic()
    for tick in range(length):
        time.sleep(max(0.0, began + tick / rate - time.monotonic()))
        if stop.is_set():
            break
        for run in range(columns):
            write = beams if run == columns - 1 else chain
            fresh = write(steps[run], leads[run], tick)
            steps[run] += fresh
            yield Update(run, tuple(fresh), leads[run][-1])
    rule = Stop("cancelled") if stop.is_set() else Stop("length", f"{length} new tokens")
    for run in range(columns):
        yield Update(run, (), leads[run][-1], trace(steps[run], leads[run], rule))


def chain(before: list[Step], leads: list[int], tick: int) -> list[Step]:
    """Return the next step of a chain."""
    id = len(before)
    leads.append(id)
    return [step(id, id - 1 if id else None, tick, "chosen", distribution(tick))]


def beams(before: list[Step], leads: list[int], tick: int) -> list[Step]:
    """Return two children of every beam, one kept and one pruned."""
    running = [item.id for item in before if item.tick == tick - 1 and item.event == "chosen"]
    fresh = []
    for beam, parent in enumerate(running or [None] * BEAMS):
        given = distribution(tick + beam)
        for event in ("chosen", "pruned"):
            id = len(before) + len(fresh)
            notes = {"beam": beam, "order": len(fresh), "total": -tick / 2, "normalized": -0.5}
            fresh.append(step(id, parent, tick, event, given, **notes))
    leads.append(fresh[0].id)
    return fresh


def step(
    id: int, parent: int | None, tick: int, event: str, given: Distribution, **notes: Any
) -> Step:
    chosen = given.candidates[0 if event == "chosen" else 1]
    raw, final = math.log(chosen.raw), math.log(chosen.final)
    timed = {**notes, "written": time.time()}
    token = chosen.token
    return Step(id, parent, tick, token, token.text, event, raw, final, 1, given, timed)


def distribution(seed: int) -> Distribution:
    """Probabilities proportional to 1, 1/2, 1/3 …; the second processor removes the last six."""
    candidates = []
    for place in range(KEPT + CUT):
        raw = SHARE / (place + 1)
        final = raw * 1.1234 if place < KEPT else 0.0
        token = Token(seed * 31 % 4000 + place, WORDS[(seed + place) % len(WORDS)])
        candidates.append(Candidate(token, raw, (raw * 1.0123, final), final))
    names = ("TemperatureLogitsWarper", "TopPLogitsWarper")
    return Distribution(tuple(candidates), names, 2.5, 2.1, KEPT, 1.5, (49152, KEPT), (None, 0.02))


def trace(steps: list[Step], leads: list[int], stop: Stop) -> Trace:
    path: list[int] = []
    at: int | None = leads[-1] if leads else None
    while at is not None:
        path.insert(0, at)
        at = steps[at].parent
    text = "".join(steps[id].text for id in path)
    returned = Returned(tuple(steps[id].token.id for id in path), text, tuple(path), stop, -0.5)
    ticks = (Tick(1, 1, 50.0),) * len(leads)
    return Trace("sample", {}, 0, "scripted", "p", (), tuple(steps), ticks, (returned,), stop)


def main() -> None:
    page = build(Labs(["scripted"], lambda _: Lab()), Limits())  # type: ignore[arg-type, return-value]
    page.launch(server_port=int(sys.argv[1]), run_history=False, quiet=True)


if __name__ == "__main__":
    main()
