"""The section Explain: what a green list's bias did at one step, and why sure steps carry no mark.

Knows the parts of the section and when they are drawn: while somebody looks at them. Refuses to
work anything out.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block
from transformers import WatermarkingConfig

import strategies
from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace
from playground.ui.compare.cards import readable
from playground.ui.compare.components import QUICK, Parts, visitor
from playground.ui.compare.results import Board
from playground.ui.compare.runs import Runs, wished
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import text_source
from playground.watermarks.green_list_step import GreenListStep, explain, watermark_of
from playground.watermarks.strategy_effects import watermark_effect
from visualizers import best_path, views
from visualizers.watermark.bias import BiasedStep
from visualizers.watermark.entropy import GreenListRun

_EMPTY = (
    "No column here has a green list. Run a comparison in which a card has a watermarking_config "
    "with seeding_scheme lefthash or selfhash, such as the example *A watermark you cannot see*. "
    "SynthID has no such list: its g-values are under Detect."
)
_UNPINNED = "No token is pinned, so this is where the model was least sure; press one above."
_WHERE_FROM = (
    "Probabilities are what the run captured. Which of the candidates are green was not captured: "
    "it is worked out again from the key."
)
_SELFHASH = " Of each step selfhash raises green tokens among the 40 likeliest alone."

Drawn = dict[Block, Any]


@dataclass(frozen=True)
class Explain:
    """The parts of the section."""

    column: gr.Dropdown
    words: gr.Markdown
    figures: gr.Row
    plots: tuple[gr.Plot, ...]

    @property
    def outputs(self) -> list[Block]:
        """What `drawn` gives values for."""
        return [self.column, self.words, self.figures, *self.plots]


def section() -> Explain:
    """The section."""
    column = gr.Dropdown(
        [],
        label="Column",
        interactive=True,
        filterable=False,
        visible=False,
        elem_id="explain-column",
    )
    words = gr.Markdown(_EMPTY, elem_id="explain-words")
    plots = []
    with gr.Row(elem_classes="figures", equal_height=False, visible=False) as figures:
        for view in views("explain"):
            with gr.Column(min_width=320, elem_id=f"figure-{view.id}"):
                gr.Markdown(view.summary, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
    with gr.Accordion("Where a strategy weakens the mark", open=False, elem_id="weakening"):
        gr.Markdown(_table())
    return Explain(column, words, figures, tuple(plots))


def _table() -> str:
    """Every strategy in one table."""
    schemes = ("lefthash", "synthid")
    rows = [
        f"| {' | '.join([readable(id), *(watermark_effect(id, scheme) for scheme in schemes)])} |"
        for id in strategies.registered()
    ]
    return "\n".join(["| strategy | green lists | SynthID |", "| --- | --- | --- |", *rows])


def connect(parts: Parts, section: Explain, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
    lab = parts.tabs.watermark
    open_now = [parts.tabs.opened, lab.opened]

    def turned(key: str | None, request: gr.Request) -> Drawn:
        return drawn(section, runs.board(visitor(request)), key, labs)

    def returned(inside: str, key: str | None, request: gr.Request) -> Drawn:
        return turned(key, request) if inside == "explain" else {section.words: gr.skip()}

    def over(opened: str, inside: str, request: gr.Request) -> Drawn:
        looking = (opened, inside) == ("watermark", "explain")
        return turned(None, request) if looking else {section.words: gr.skip()}

    def pin(opened: str, inside: str, key: str, event: gr.EventData, request: gr.Request) -> Drawn:
        board, at = runs.board(visitor(request)), wished(event._data).get("at")
        if board is None or (opened, inside) != ("watermark", "explain"):
            return {section.words: gr.skip()}
        board.at = at if type(at) is int and at >= 0 else None
        return turned(key, request)

    often = {**QUICK, "trigger_mode": "multiple"}
    outputs = section.outputs
    lab.each["explain"].select(turned, section.column, outputs, **QUICK)
    # Whoever comes back to the tab finds the section as it was left, and other runs above it.
    back = [lab.opened, section.column]
    parts.tabs.each["watermark"].select(returned, back, outputs, **QUICK)
    section.column.input(turned, section.column, outputs, **QUICK)
    parts.live.over(over, open_now, outputs, **often)
    last = {**QUICK, "trigger_mode": "always_last"}
    parts.live.pinned(pin, [*open_now, section.column], outputs, **last)


def drawn(section: Explain, board: Board | None, key: str | None, labs: Labs) -> Drawn:
    """What the section shows of a board."""
    names = _columns(board)
    if board is None or not names:
        gone = {section.column: gr.Dropdown(visible=False), section.figures: gr.Row(visible=False)}
        return {**gone, section.words: _EMPTY}
    places = [place for _, place in names]
    key = key if key in places else places[0]
    shown = gr.Dropdown(choices=names, value=key, visible=True)
    trace = board.column(int(key)).trace
    assert trace is not None, "only columns with a text are offered"
    try:
        told = explain(labs.lab(board.model).model, trace, _place(trace, board.at))
    except PlaygroundError as error:
        gone = {section.column: shown, section.figures: gr.Row(visible=False)}
        return {**gone, section.words: html.escape(str(error))}
    inputs = (BiasedStep(told.choices), GreenListRun(trace, told.share, told.at))
    by_type = {type(data): data for data in inputs}
    figures = [view.draw(by_type[view.input]) for view in views("explain")]
    return {
        section.column: shown,
        section.words: _words(told, trace, pinned=board.at is not None),
        section.figures: gr.Row(visible=True),
        **dict(zip(section.plots, figures, strict=True)),
    }


def _columns(board: Board | None) -> list[tuple[str, str]]:
    """The columns that have a green list."""
    return [
        (name, key)
        for name, key in text_source.columns(board)
        if (column := text_source.chosen(board, key))
        and column.trace
        and isinstance(watermark_of(column.trace.settings), WatermarkingConfig)
    ]


def _place(trace: Trace, at: int | None) -> int:
    """The pinned place; where there is none, the one at which the model was least sure."""
    if at is not None:
        return at
    unsure = [
        step.distribution.raw_entropy if step.distribution else 0.0 for step in best_path(trace)
    ]
    return len(trace.prefix) + max(range(len(unsure)), key=unsure.__getitem__, default=0)


def _words(told: GreenListStep, trace: Trace, *, pinned: bool) -> str:
    shares = f"{told.green_before:.1%} before the bias and {told.green_after:.1%} after it"
    mark = watermark_of(trace.settings)
    selfhash = getattr(mark, "seeding_scheme", "") == "selfhash"
    lines = [
        f"**Token {told.at + 1}**, entropy {told.entropy:.2f} nats. The green list holds "
        f"{told.share:.1%} of the vocabulary. The candidates below had {told.captured:.1%} of the "
        f"probability; the green ones among them {shares}, which adds {told.bias:g} to the scores "
        "of green tokens.",
        *([] if pinned else [_UNPINNED]),
        _WHERE_FROM + (_SELFHASH if selfhash else ""),
    ]
    return "\n\n".join(lines)
