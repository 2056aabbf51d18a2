"""Draft length: one drafter over a grid of its settings, and at several temperatures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground import Playground
from playground.speculation import acceptance, grid
from playground.speculation.acceptance import TEMPERATURES, AtTemperature, temperatures
from playground.speculation.grid import Sweep, axes, sweep
from playground.ui.shared import html
from playground.ui.shared.events import StateValue, Updates, Values
from playground.ui.shared.jobs import JobControls, Jobs, Report, job_controls
from playground.ui.speculative.form import Form
from playground.ui.speculative.race import TimedRuns
from visualizers.speculative.heat_map import Cell, SettingsGrid, speculative_grid

_GRID = (
    "Measures one run for each cell of a grid: draft length against the confidence threshold. "
    "Early exit is measured after several layers; for prompt lookup the second axis is the number "
    "of tokens that must match."
)
_TEMPERATURE = (
    "**Temperature.** At a higher temperature the model is less certain and accepts fewer drafted "
    "tokens. This samples with the same drafter and prompt at several temperatures."
)
_TOKENS = 24
_HEAD = ("temperature", "accepted", "verified", "rate", "tokens per pass", "entropy (nats)")


@dataclass(frozen=True)
class DraftLengthSection:
    """The components of the section."""

    drafter: gr.Dropdown
    tokens: gr.Slider
    grid_controls: JobControls
    grid_result: gr.State  # a `StateValue[Sweep]`
    figure_area: gr.Column
    figure: gr.Plot
    temperature_controls: JobControls
    temperature_result: gr.HTML

    def draw(self, result: StateValue[Sweep] | None) -> Updates:
        """Draw the heat map."""
        if result is None:  # a forged event: nothing was measured
            return {self.figure: gr.skip()}
        return {self.figure_area: gr.Column(visible=True), self.figure: _heat_map(result.value)}


def build_draft_length(limits: Limits) -> DraftLengthSection:
    """The section."""
    gr.Markdown(_GRID, elem_classes="summary")
    with gr.Row(elem_classes="settings detection"):
        drafter = gr.Dropdown(
            [], label="drafter", interactive=True, filterable=False, elem_id="spec-sweep-drafter"
        )
        tokens = gr.Slider(
            *(min(4, limits.max_new_tokens), min(limits.max_new_tokens, 128)),
            value=min(_TOKENS, limits.max_new_tokens),
            step=4,
            label="tokens per run",
            info="Longer runs give more stable times.",
            interactive=True,
            elem_id="spec-sweep-tokens",
        )
    grid_controls = job_controls("spec-sweep", measure="Measure the grid")
    with gr.Column(visible=False, elem_classes="figures") as figure_area:
        figure = gr.Plot(show_label=False, container=False, elem_id="spec-sweep-plot")
    gr.Markdown(_TEMPERATURE, elem_classes="summary")
    temperature_controls = job_controls("spec-heat", measure="Measure temperatures")
    temperature_result = gr.HTML(elem_id="spec-heat", elem_classes="lab-output", padding=False)
    return DraftLengthSection(
        *(drafter, tokens, grid_controls, gr.State(None), figure_area, figure),
        *(temperature_controls, temperature_result),
    )


def measure_grid(
    section: DraftLengthSection,
    form: Form,
    jobs: Jobs,
    timed: TimedRuns,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Updates]:
    """Measure the grid; yields the progress, then the cells that were measured."""
    prompt = form.prompt_of(values)
    drafter = form.drafter(lab, values[section.drafter], values)
    layer = int(values[form.layer])
    of_grid = axes(lab, drafter.strategy, [layer] if layer else ())
    shared = {**form.shared_of(values), "max_new_tokens": int(values[section.tokens])}

    def work(stop: threading.Event, report: Report) -> None:
        cells = sweep(lab, prompt, drafter, of_grid, stop=stop, **shared)
        for progress in timed.one_by_one(cells, stop, report):
            report(progress)

    controls, last = section.grid_controls, None
    for batch in jobs.run(visitor, work):
        for item in batch:
            if isinstance(item, grid.Progress):
                last = item
        texts = [item for item in batch if isinstance(item, str)]
        if texts:
            yield controls.status(texts[-1])
        elif last:
            yield controls.status(f"{last.done} of {last.total} runs", last.done, last.total)
    if last is None or not last.sweep.cells:
        yield controls.status("Stopped before the first run ended.")
        return
    stopped = "" if last.done == last.total else f"Stopped after {last.done} of {last.total} runs. "
    yield {
        **controls.status(stopped + _fastest(last.sweep)),
        section.grid_result: StateValue(last.sweep),
    }


def _heat_map(found: Sweep) -> Any:
    """The first two settings are the axes; a third one has a panel for each value."""
    across, *others = found.axes
    panels = others[1:]
    cells = tuple(
        Cell(
            *(one.values[0], one.values[1] if others else 0.0),
            ", ".join(
                f"{axis.title} {value:g}"
                for axis, value in zip(panels, one.values[2:], strict=True)
            ),
            *(one.tokens_per_second, one.compression, one.acceptance),
        )
        for one in found.cells
    )
    second = others[0].title if others else ""
    return speculative_grid(SettingsGrid(cells, across.title, second, found.plain))


def _fastest(found: Sweep) -> str:
    best = found.best
    if best is None or best.tokens_per_second is None:
        return "No run finished."
    titles = [axis.title for axis in found.axes]
    cell = ", ".join(f"{title} {value:g}" for title, value in zip(titles, best.values, strict=True))
    rate = best.tokens_per_second
    if not found.plain:
        return f"Fastest: {cell}, {rate:.1f} tokens/s."
    speed_up = rate / found.plain
    slower = "" if speed_up > 1 else " Plain decoding is faster on this prompt and machine."
    return f"Fastest: {cell}, {rate:.1f} tokens/s, a speed-up of {speed_up:.2f}.{slower}"


def measure_temperatures(
    section: DraftLengthSection,
    form: Form,
    jobs: Jobs,
    timed: TimedRuns,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Updates]:
    """Measure each temperature; if stopped, the rows so far stay."""
    prompt = form.prompt_of(values)
    drafter = form.drafter(lab, values[section.drafter], values)
    shared = {**form.shared_of(values), "max_new_tokens": int(values[section.tokens])}

    def work(stop: threading.Event, report: Report) -> None:
        runs = temperatures(lab, prompt, drafter, stop=stop, **shared)
        for progress in timed.one_by_one(runs, stop, report):
            report(progress)

    controls, done, total = section.temperature_controls, 0, len(TEMPERATURES)
    for batch in jobs.run(visitor, work):
        reports = [item for item in batch if isinstance(item, acceptance.Progress)]
        texts = [item for item in batch if isinstance(item, str)]
        if reports:
            done, total = reports[-1].done, reports[-1].total
            yield {section.temperature_result: _table(drafter.name, reports[-1].found)}
        yield controls.status(texts[-1] if texts else f"{done} of {total} runs", done, total)
    yield controls.status("Done." if done == total else f"Stopped after {done} of {total} runs.")


def _table(name: str, found: tuple[AtTemperature, ...]) -> str:
    rows = [
        [
            f"{one.temperature:g}",
            str(one.share.accepted),
            str(one.share.verified),
            "–" if one.share.rate is None else f"{one.share.rate:.0%}",
            "–" if one.compression is None else f"{one.compression:.2f}",
            "–" if one.entropy is None else f"{one.entropy:.2f}",
        ]
        for one in found
    ]
    return html.title(name) + html.table("Temperatures", _HEAD, rows) if rows else ""
