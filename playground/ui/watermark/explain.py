"""The section Explain: what a green list's bias did at one step, and where it has no effect."""

from __future__ import annotations

import html
from dataclasses import dataclass

import gradio as gr
from gradio.blocks import Block
from transformers import WatermarkingConfig

import strategies
from engine.errors import PlaygroundError
from engine.trace import Trace
from playground.ui.shared.comparison import Comparison, strategy_title
from playground.ui.shared.events import EVERY, LATEST, QUICK, Updates, event_data, open_view
from playground.ui.shared.figures import FigurePlaces, figure_places
from playground.ui.shared.pages import App, ComparisonEvents
from playground.ui.watermark import texts
from playground.watermarks.green_list_step import GreenListStep, explain, watermark_of
from playground.watermarks.strategy_effects import watermark_effect
from visualizers import best_path, views
from visualizers.watermark.bias import BiasedStep
from visualizers.watermark.entropy import GreenListRun

_EMPTY = (
    "No column has a green list. Run a comparison with a watermarking_config whose seeding_scheme "
    "is lefthash or selfhash, for example *A watermark you cannot see*. SynthID has no green list; "
    "Detect shows its g-values."
)
_NOT_PINNED = (
    "No token is pinned: this is the step with the highest entropy. Click a token above to pin it."
)
_SOURCE = (
    "The probabilities were captured from the run. Which candidates are green was not captured; it "
    "is computed again from the key."
)
_SELFHASH = " Selfhash raises only green tokens among the 40 most probable ones of a step."


@dataclass(frozen=True)
class ExplainSection:
    """The components of the section."""

    app: App
    column: gr.Dropdown
    text: gr.Markdown
    figures: FigurePlaces

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [self.column, self.text, *self.figures.outputs]

    def connect(
        self, page: gr.Tab, section: gr.Tab, open_section: gr.State, comparison: ComparisonEvents
    ) -> None:
        """Connect the section; ``page`` and ``section`` are the tabs it is in."""
        nothing: Updates = {self.text: gr.skip()}

        def is_open(event: gr.EventData, section: str) -> bool:
            return (open_view(event).page, section) == ("watermark", "explain")

        def opened(key: str | None, request: gr.Request) -> Updates:
            return self.draw(comparison.current(request), key)

        def page_opened(section: str, key: str | None, request: gr.Request) -> Updates:
            return opened(key, request) if section == "explain" else nothing

        def finished(section: str, event: gr.EventData, request: gr.Request) -> Updates:
            return opened(None, request) if is_open(event, section) else nothing

        def pinned(section: str, key: str, event: gr.EventData, request: gr.Request) -> Updates:
            current, position = comparison.current(request), event_data(event, "at")["at"]
            if current is None or not is_open(event, section):
                return nothing
            valid = type(position) is int and position >= 0
            current.position = position if valid else None
            return opened(key, request)

        section.select(opened, self.column, self.outputs, **EVERY)
        # When the page is opened again, the comparison may have changed.
        page.select(page_opened, [open_section, self.column], self.outputs, **EVERY)
        self.column.input(opened, self.column, self.outputs, **QUICK)
        comparison.finished(finished, open_section, self.outputs, **EVERY)
        comparison.pinned(pinned, [open_section, self.column], self.outputs, **LATEST)

    def draw(self, comparison: Comparison | None, key: str | None) -> Updates:
        """Show the pinned step of a column."""
        names = _columns(comparison)
        hidden = self.figures.hide()
        if comparison is None or not names:
            return {**hidden, self.column: gr.Dropdown(visible=False), self.text: _EMPTY}
        keys = [each for _, each in names]
        key = key if key in keys else keys[0]
        menu = gr.Dropdown(choices=names, value=key, visible=True)
        trace = comparison.column(int(key)).trace
        assert trace is not None, "only columns with a text are offered"
        try:
            model = self.app.labs.lab(comparison.model).model
            found = explain(model, trace, _position(trace, comparison.position))
        except PlaygroundError as error:
            return {**hidden, self.column: menu, self.text: html.escape(str(error))}
        inputs = {
            BiasedStep: BiasedStep(found.choices),
            GreenListRun: GreenListRun(trace, found.share, found.at),
        }
        return {
            self.column: menu,
            self.text: _describe(found, trace, pinned=comparison.position is not None),
            **self.figures.draw(inputs),
        }


def build_explain(app: App) -> ExplainSection:
    """The section."""
    column = gr.Dropdown(
        [],
        label="Column",
        interactive=True,
        filterable=False,
        visible=False,
        elem_id="explain-column",
    )
    text = gr.Markdown(_EMPTY, elem_id="explain-words")
    figures = figure_places(views("explain"))
    with gr.Accordion("How strategies weaken a watermark", open=False, elem_id="weakening"):
        gr.Markdown(_strategy_table())
    return ExplainSection(app, column, text, figures)


def _strategy_table() -> str:
    rows = []
    for id in strategies.registered():
        effects = [watermark_effect(id, scheme) for scheme in ("lefthash", "synthid")]
        rows.append(f"| {strategy_title(id)} | {' | '.join(effects)} |")
    return "\n".join(["| strategy | green lists | SynthID |", "| --- | --- | --- |", *rows])


def _columns(comparison: Comparison | None) -> list[tuple[str, str]]:
    """The columns that have a green list."""
    return [
        (name, key)
        for name, key in texts.columns(comparison)
        if (column := texts.chosen(comparison, key))
        and column.trace
        and isinstance(watermark_of(column.trace.settings), WatermarkingConfig)
    ]


def _position(trace: Trace, pinned: int | None) -> int:
    """The pinned position, or else the one with the highest entropy."""
    if pinned is not None:
        return pinned
    entropies = [
        (step.distribution.raw_entropy or 0.0) if step.distribution else 0.0
        for step in best_path(trace)
    ]
    return len(trace.prefix) + max(range(len(entropies)), key=entropies.__getitem__, default=0)


def _describe(found: GreenListStep, trace: Trace, *, pinned: bool) -> str:
    shares = f"{found.green_before:.1%} before the bias and {found.green_after:.1%} after it"
    mark = watermark_of(trace.settings)
    selfhash = getattr(mark, "seeding_scheme", "") == "selfhash"
    entropy = "not captured" if found.entropy is None else f"{found.entropy:.2f} nats"
    lines = [
        f"**Token {found.at + 1}**, entropy {entropy}. The green list has "
        f"{found.share:.1%} of the vocabulary. The candidates below had {found.captured:.1%} of "
        f"the probability, and the green ones among them {shares}. The bias adds {found.bias:g} to "
        "the scores of green tokens.",
        *([] if pinned else [_NOT_PINNED]),
        _SOURCE + (_SELFHASH if selfhash else ""),
    ]
    return "\n\n".join(lines)
