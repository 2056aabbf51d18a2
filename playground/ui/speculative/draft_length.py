"""How far ahead? One drafter over a grid of its settings, as a heat map.

Knows what may be asked and where the outcome stands. Refuses to run a cell and to draw the map.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground import Playground
from playground.speculation.grid import Progress, Sweep, axes, sweep
from playground.ui.compare.components import Values
from playground.ui.shared.job_controls import Bench, Drawn, bench
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.speculative import temperature
from playground.ui.speculative.form import Form
from playground.ui.speculative.race import Kept, Track
from playground.ui.speculative.temperature import Warmth
from visualizers.speculative.heat_map import Cell, SettingsGrid, speculative_grid

_WHAT = (
    "How many tokens to draft, and how sure to be of each? One run for every cell of a grid, each "
    "alone: draft length against the confidence threshold, for early exit after several layers, "
    "for lookup against how many tokens must match."
)
_TOKENS = 24


@dataclass(frozen=True)
class Ahead:
    """The parts of the section; ``found`` is the `Sweep`, `Kept`."""

    drafter: gr.Dropdown
    tokens: gr.Slider
    bench: Bench
    found: gr.State
    shown: gr.Column
    plot: gr.Plot
    warmth: Warmth

    def drawn(self, kept: Kept[Sweep]) -> Drawn:
        """The heat map."""
        return {self.shown: gr.Column(visible=True), self.plot: _heat(kept.value)}


def section(limits: Limits) -> Ahead:
    """The section."""
    gr.Markdown(_WHAT, elem_classes="summary")
    with gr.Row(elem_classes="settings detection"):
        drafter = gr.Dropdown(
            [], label="drafter", interactive=True, filterable=False, elem_id="spec-sweep-drafter"
        )
        tokens = gr.Slider(
            *(min(4, limits.max_new_tokens), min(limits.max_new_tokens, 128)),
            value=min(_TOKENS, limits.max_new_tokens),
            step=4,
            label="tokens of each run",
            info="More of them take longer and give steadier times: those of short runs jump.",
            interactive=True,
            elem_id="spec-sweep-tokens",
        )
    buttons = bench("spec-sweep", "Measure the grid")
    with gr.Column(visible=False, elem_classes="figures") as shown:
        plot = gr.Plot(show_label=False, container=False, elem_id="spec-sweep-plot")
    return Ahead(drafter, tokens, buttons, gr.State(None), shown, plot, temperature.section())


def measure(
    section: Ahead,
    form: Form,
    jobs: Jobs,
    track: Track,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Drawn]:
    """A sweep: how far it is, then the cells there are."""
    prompt = form.text(values)
    drafter = form.one(lab, values[section.drafter], values)
    layer = int(values[form.layer])
    grid = axes(lab, drafter.strategy, [layer] if layer else ())
    shared = {**form.shared(values), "max_new_tokens": int(values[section.tokens])}

    def work(stop: threading.Event, tell: Tell) -> None:
        steps = sweep(lab, prompt, drafter, grid, stop=stop, **shared)
        for step in track.turns(steps, stop, tell):
            tell(step)

    last: Progress | None = None
    for news in jobs.follow(visitor, work):
        told = [item for item in news if isinstance(item, Progress)]
        last = told[-1] if told else last
        words = [item for item in news if isinstance(item, str)]
        if words:
            yield section.bench.say(words[-1])
        elif last:
            yield section.bench.say(f"{last.done} of {last.total} runs", last.done, last.total)
    if last is None or not last.sweep.cells:
        yield section.bench.say("Stopped before a run was over.")
        return
    cut = "" if last.done == last.total else f"Stopped after {last.done} of {last.total} runs. "
    yield {**section.bench.say(cut + _best(last.sweep)), section.found: Kept(last.sweep)}


def _heat(found: Sweep) -> Any:
    """The map: the first two settings are its axes, a third one has a panel for each value."""
    across, *others = found.axes
    up = others[0] if others else across
    further = others[1:]
    cells = tuple(
        Cell(
            *(one.values[0], one.values[1] if others else 0.0),
            ", ".join(
                f"{axis.title} {value:g}"
                for axis, value in zip(further, one.values[2:], strict=True)
            ),
            *(one.tokens_per_second, one.compression, one.acceptance),
        )
        for one in found.cells
    )
    y_title = up.title if others else ""
    return speculative_grid(SettingsGrid(cells, across.title, y_title, found.plain))


def _best(found: Sweep) -> str:
    """The best cell in words."""
    best = found.best
    if best is None or best.tokens_per_second is None:
        return "No run came to its end."
    titles = [axis.title for axis in found.axes]
    told = ", ".join(f"{title} {value:g}" for title, value in zip(titles, best.values, strict=True))
    rate = best.tokens_per_second
    if not found.plain:
        return f"Fastest: {told}, {rate:.1f} tokens a second."
    times = rate / found.plain
    pays = "" if times > 1 else " Not drafting is faster on this prompt and this machine."
    return f"Fastest: {told}, {rate:.1f} tokens a second, {times:.2f} times plain decoding.{pays}"
