"""The section Detect: a text in, every token's verdict and the figures out, at every change.

Knows the parts of the section and what a change of each leads to. Refuses to judge: the engine
does, and `told` puts it into words.
"""

from __future__ import annotations

import uuid
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.watermark.detection import Detection
from engine.watermark.detector import detect, scan
from engine.watermark.windows import Scan
from playground.ui.compare.components import QUICK, QUIET, Parts, Values, visitor
from playground.ui.compare.results import Board, Column
from playground.ui.compare.runs import Runs
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import detection_view, text_source, uploaded_detector
from playground.ui.watermark.detect_layout import Detect, section
from playground.ui.watermark.detector_settings import Drawn
from playground.ui.watermark.text_source import COLUMN, FILE, PASTED
from playground.watermarks.green_list_step import watermark_of
from playground.watermarks.strategy_effects import watermark_effect
from visualizers import views
from visualizers.watermark.scan import ScannedText

__all__ = ["Detect", "connect", "section"]

# The last change counts: while one detection goes on, of all that is changed only that waits.
_LIVE: dict[str, Any] = {**QUIET, "concurrency_limit": 4, "trigger_mode": "always_last"}


def connect(parts: Parts, section: Detect, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
    _connect_columns(parts, section, labs, runs)
    _connect_tries(section, runs)

    def look(values: Values, request: gr.Request) -> Drawn:
        return looked(section, values, runs.board(visitor(request)), labs, limits)

    changes = [section.source, section.pasted, section.tokenizer, *section.fields.all]
    triggers = [*map(_changed, changes), section.asked.change]
    shown = [section.column, section.pasted, section.upload, section.own, section.bring]
    rows = [section.fields.green_row, section.fields.synthid_row]
    outputs = [section.view, *section.groups, *section.plots, *shown, *rows]
    gr.on(triggers, look, section.inputs, outputs, **_LIVE)


def _changed(control: Any) -> Any:
    """The event that tells of a change: of text that is pasted Gradio tells no input."""
    return control.change if isinstance(control, gr.Textbox) else control.input


def _connect_columns(parts: Parts, section: Detect, labs: Labs, runs: Runs) -> None:
    """Connect what brings other columns: a tab that is opened, a run that is over, a choice."""

    def turned(seen: str, request: gr.Request) -> Drawn:
        return refreshed(section, runs.board(visitor(request)), seen, labs)

    def over(opened: str, seen: str, request: gr.Request) -> Drawn:
        return turned(seen, request) if opened == "watermark" else {section.asked: gr.skip()}

    def choose(key: str, seen: str, request: gr.Request) -> Drawn:
        board = runs.board(visitor(request))
        if board is None or seen == (now := _seen(board, key)):
            return {section.asked: gr.skip()}  # a list that was left tells of a choice as well
        column = text_source.chosen(board, key)
        return {**_own(section, column), section.seen: now, section.asked: _anew()}

    told_again = {**QUICK, "trigger_mode": "multiple"}
    tabs = parts.tabs
    tabs.each["watermark"].select(turned, section.seen, section.prefilled, **QUICK)
    parts.live.over(over, [tabs.opened, section.seen], section.prefilled, **told_again)
    section.column.input(choose, [section.column, section.seen], section.prefilled, **QUICK)


def _connect_tries(section: Detect, runs: Runs) -> None:
    """Connect the buttons that change what the detector knows, and the file."""
    known = section.fields
    outputs = [*known.outputs, section.asked]

    def key(values: Values) -> Drawn:
        try:
            return {**known.another_key(values), section.asked: _anew()}
        except PlaygroundError:  # what stands there is no key; the view says so already
            return {section.asked: _anew()}

    def scheme(values: Values) -> Drawn:
        return {**known.another_scheme(values), section.asked: _anew()}

    def own(values: Values, request: gr.Request) -> Drawn:
        column = text_source.chosen(runs.board(visitor(request)), values[section.column])
        return {**_own(section, column), section.asked: _anew()}

    def opened(path: str) -> tuple[str, str, str]:
        return path, FILE, _anew()

    def bring(paths: list[str]) -> tuple[tuple[str, ...], str]:
        return tuple(paths), _anew()

    section.bring.upload(bring, section.bring, [section.brought, section.asked], **QUICK)
    inputs = set(section.inputs)
    section.other_key.click(key, inputs, outputs, **QUICK)
    section.other_scheme.click(scheme, inputs, outputs, **QUICK)
    section.own.click(own, inputs, outputs, **QUICK)
    arrived = [section.file, section.source, section.asked]
    section.upload.upload(opened, section.upload, arrived, **QUICK)


def _anew() -> str:
    return uuid.uuid4().hex


def _seen(board: Board, key: str | None) -> str:
    return f"{board.feed.id}:{key}"


def _own(section: Detect, column: Column | None) -> Drawn:
    """The settings a column was marked with; those there are where it was not."""
    mark = watermark_of(column.trace.settings) if column and column.trace else None
    return {} if mark is None else section.fields.fill(mark)


def refreshed(section: Detect, board: Board | None, seen: str, labs: Labs) -> Drawn:
    """The columns there are now: the first one of a new comparison, else the one chosen before."""
    names = text_source.columns(board)
    if board is None or not names:
        return {section.asked: _anew()}
    feed, _, key = seen.rpartition(":")
    if feed == board.feed.id and key in {place for _, place in names}:
        return {section.column: gr.Dropdown(choices=names, value=key), section.asked: _anew()}
    first = names[0][1]
    offered = board.model in labs.names
    return {
        section.column: gr.Dropdown(choices=names, value=first),
        section.tokenizer: board.model if offered else gr.skip(),
        **_own(section, text_source.chosen(board, first)),
        section.seen: _seen(board, first),
        section.asked: _anew(),
    }


def looked(
    section: Detect, values: Values, board: Board | None, labs: Labs, limits: Limits
) -> Drawn:
    """What the section shows now."""
    where = values[section.source]
    column = text_source.chosen(board, values[section.column])
    shown: Drawn = {
        section.column: gr.Dropdown(visible=where == COLUMN),
        section.pasted: gr.Textbox(visible=where == PASTED),
        section.upload: gr.UploadButton(visible=where == FILE),
        section.own: gr.Button(interactive=where == COLUMN and bool(_own(section, column))),
        section.bring: gr.UploadButton(visible=values[section.fields.scheme] == "synthid"),
        **section.fields.scheme_shown(values[section.fields.scheme]),
    }
    try:
        text = _text(section, values, board, column, limits)
        if text is None:
            hidden: Drawn = {group: gr.Column(visible=False) for group in section.groups}
            return {
                **shown,
                section.view: detection_view.nothing(text_source.EMPTY[where]),
                **hidden,
            }
        lab = labs.lab(values[section.tokenizer])
        found = detect(lab.model, text.text, limits=limits, **section.fields.asked(values))
    except PlaygroundError as error:
        return {**shown, section.view: detection_view.refused(str(error))}
    passages = scan(found)
    notes = uploaded_detector.notes(lab.model, text.text, values[section.brought], found, limits)
    notes += _notes(text.column, found.scheme)
    view = detection_view.detected(found, passages, text.name, notes)
    return {**shown, section.view: view, **_drawn(section, found, passages)}


def _text(
    section: Detect, values: Values, board: Board | None, column: Column | None, limits: Limits
) -> text_source.Text | None:
    where = values[section.source]
    if where == COLUMN:
        if board is None or column is None:
            return None
        return text_source.of_column(board, column, values[section.tokenizer])
    if where == PASTED:
        return (
            text_source.Text(values[section.pasted], "Pasted text")
            if values[section.pasted]
            else None
        )
    return text_source.of_file(values[section.file], limits) if values[section.file] else None


def _notes(column: Column | None, scheme: str) -> list[str]:
    """What to know about the mark of a column."""
    if column is None or column.trace is None:
        return []
    mark = watermark_of(column.trace.settings)
    if mark is None:
        return ["This column was written without a watermark."]
    own = getattr(mark, "seeding_scheme", "synthid")
    wrong = [f"This column was marked with {own}, which is not what is looked for."]
    return [*(wrong if own != scheme else []), watermark_effect(column.trace.strategy, own)]


def _drawn(section: Detect, found: Detection, passages: Scan) -> Drawn:
    inputs = {Detection: found, ScannedText: ScannedText(found, passages)}
    drawn: Drawn = {}
    for view, group, plot in zip(views("detect"), section.groups, section.plots, strict=True):
        data = inputs[view.input]
        drawn[group] = gr.Column(visible=view.needs(data))
        if view.needs(data):
            drawn[plot] = view.draw(data)
    return drawn
