"""The section Detect: detects a watermark in a text, again at every change of a control."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.watermark.detection import Detection
from engine.watermark.detector import detect, scan
from playground.ui import assets
from playground.ui.shared.back_button import BackButton, build_back_button
from playground.ui.shared.comparison import Column, Comparison
from playground.ui.shared.events import (
    EVERY,
    LATEST,
    QUICK,
    QUIET,
    Updates,
    Values,
    open_view,
    visitor,
)
from playground.ui.shared.figures import FigurePlaces, figure_places
from playground.ui.shared.pages import App, ComparisonEvents, SentColumn
from playground.ui.watermark import detection_view, texts, uploaded_detector
from playground.ui.watermark.detector_settings import (
    DetectorSettings,
    build_detector_settings,
    build_scheme_and_key,
)
from playground.ui.watermark.texts import COLUMN, FILE, PASTED
from playground.watermarks.green_list_step import watermark_of
from playground.watermarks.strategy_effects import watermark_effect
from visualizers import views
from visualizers.watermark.scan import ScannedText

_MAX_VISITORS = 1_000  # whose latest detection is known
_SCRIPT = "watermark/web/detection.js"
_STARTED, _FAILED = (assets.listener(_SCRIPT, name) for name in ("started", "failed"))
# While a detection runs, only the last of all changes waits.
_LIVE: dict[str, Any] = {**QUIET, "concurrency_limit": 4, "trigger_mode": "always_last"}
# One at a time: a page that is opened with a column reports both, and the column must stay.
ONE_FILL: dict[str, Any] = {**EVERY, "concurrency_limit": 1, "concurrency_id": "detect column"}


@dataclass(frozen=True)
class DetectSection:
    """The components of the section."""

    app: App
    source: gr.Radio
    column: gr.Dropdown
    pasted: gr.Textbox
    upload: gr.UploadButton
    file: gr.State  # the path of the uploaded file
    tokenizer: gr.Dropdown
    settings: DetectorSettings
    own_settings: gr.Button
    other_key: gr.Button
    other_scheme: gr.Button
    upload_detector: gr.UploadButton
    detector_files: gr.State  # the paths of an uploaded detector
    view: gr.HTML
    figures: FigurePlaces
    back: BackButton
    filled_from: gr.State  # the comparison and column whose settings were filled in last
    refresh: gr.State  # changes when a listener has changed a control

    @property
    def inputs(self) -> set[Block]:
        """What a detection depends on."""
        text = {self.source, self.column, self.pasted, self.file, self.tokenizer}
        return {*text, self.detector_files, *self.settings.all}

    @property
    def filled(self) -> list[Block]:
        """What is filled in when another column is chosen."""
        return [
            self.source,
            self.column,
            self.tokenizer,
            *self.settings.outputs,
            self.filled_from,
            self.refresh,
        ]

    @property
    def received(self) -> list[Block]:
        """The components that `receive` updates."""
        return [*self.filled, *self.back.outputs]

    def receive(self, sent: SentColumn) -> Updates:
        """Show a column that was sent to the page, with the settings of its watermark or else the
        defaults."""
        return {
            self.source: COLUMN,
            **self.settings.reset(),
            **self._fill(sent.comparison, sent.column),
            **self.back.show(sent),
        }

    def connect(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Connect the section; ``tab`` is that of the Watermark page."""
        self.back.connect(str(tab.id), comparison)
        # These lead to a detection after an event of their own. Gradio runs the listeners of an
        # event one after the other, so this one comes first.
        buttons = [self.other_key.click, self.other_scheme.click, self.own_settings.click]
        gr.on([*buttons, self.column.change], None, js=_STARTED, **QUIET)
        self._connect_columns(tab, comparison)
        self._connect_buttons(comparison)
        self._connect_visibility()

        latest = _Latest()

        def listener(values: Values, request: gr.Request) -> Updates:
            number = latest.start(visitor(request))
            updates = self._detect(values, comparison.current(request))
            if latest.is_current(visitor(request), number):
                return updates
            return {self.view: gr.skip()}

        changes = [self.source, self.pasted, self.tokenizer, *self.settings.all]
        triggers = [*map(_change_event, changes), self.refresh.change]
        outputs = [self.view, *self.figures.outputs, self.own_settings]
        detection = gr.on(triggers, listener, self.inputs, outputs, js=_STARTED, **_LIVE)
        detection.failure(None, js=_FAILED, **QUIET)

    def _connect_columns(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Update the menu of columns when the tab is opened or runs have ended."""

        def opened(source: str, pasted: str, filled_from: str, request: gr.Request) -> Updates:
            updates = self._show_columns(comparison.current(request), filled_from)
            if self.column in updates and source == PASTED and not pasted:
                updates |= {self.source: COLUMN, self.refresh: _new_id()}
            return updates

        def finished(
            source: str, pasted: str, filled_from: str, event: gr.EventData, request: gr.Request
        ) -> Updates:
            if open_view(event).page != "watermark":
                return {self.refresh: gr.skip()}
            return opened(source, pasted, filled_from, request)

        def choose(key: str, filled_from: str, request: gr.Request) -> Updates:
            current = comparison.current(request)
            if current is None or filled_from == (now := _column_id(current, key)):
                return {self.refresh: gr.skip()}  # a menu also reports a choice when it is left
            own = self._own_settings(texts.chosen(current, key))
            return {**own, self.filled_from: now, self.refresh: _new_id()}

        inputs = [self.source, self.pasted, self.filled_from]
        tab.select(opened, inputs, self.filled, **ONE_FILL)
        comparison.finished(finished, inputs, self.filled, **ONE_FILL)
        self.column.input(choose, [self.column, self.filled_from], self.filled, **ONE_FILL)

    def _connect_buttons(self, comparison: ComparisonEvents) -> None:
        """Connect the buttons that change the detector's settings, and the uploads."""

        def other_key(values: Values) -> Updates:
            try:
                return {**self.settings.other_key(values), self.refresh: _new_id()}
            except PlaygroundError:  # an invalid key; the view shows the reason
                return {self.refresh: _new_id()}

        def other_scheme(values: Values) -> Updates:
            return {**self.settings.other_scheme(values), self.refresh: _new_id()}

        def own_settings(values: Values, request: gr.Request) -> Updates:
            column = texts.chosen(comparison.current(request), values[self.column])
            return {**self._own_settings(column), self.refresh: _new_id()}

        def upload(path: str) -> tuple[str, str, str]:
            return path, FILE, _new_id()

        def upload_detector(paths: list[str]) -> tuple[tuple[str, ...], str]:
            return tuple(paths), _new_id()

        outputs = [*self.settings.outputs, self.refresh]
        for button, listener in (
            (self.other_key, other_key),
            (self.other_scheme, other_scheme),
            (self.own_settings, own_settings),
        ):
            button.click(listener, set(self.inputs), outputs, **QUICK)
        self.upload.upload(upload, self.upload, [self.file, self.source, self.refresh], **QUICK)
        files = [self.detector_files, self.refresh]
        self.upload_detector.upload(upload_detector, self.upload_detector, files, **QUICK)

    def _connect_visibility(self) -> None:
        """Show what the source and the scheme need."""

        def show_source(source: str) -> Updates:
            return {
                self.column: gr.Dropdown(visible=source == COLUMN),
                self.pasted: gr.Textbox(visible=source == PASTED),
                self.upload: gr.UploadButton(visible=source == FILE),
                self.own_settings: gr.Button(visible=source == COLUMN),
            }

        def show_scheme(scheme: str) -> Updates:
            upload = gr.UploadButton(visible=scheme == "synthid")
            return {**self.settings.show_scheme(scheme), self.upload_detector: upload}

        sources = [self.column, self.pasted, self.upload, self.own_settings]
        self.source.change(show_source, self.source, sources, **LATEST)
        scheme, rows = self.settings.scheme, [*self.settings.rows, self.upload_detector]
        scheme.change(show_scheme, scheme, rows, **LATEST)

    def _own_settings(self, column: Column | None) -> Updates:
        """Fill in the settings of a column's watermark, if it has one."""
        mark = watermark_of(column.trace.settings) if column and column.trace else None
        return {} if mark is None else self.settings.fill(mark)

    def _show_columns(self, comparison: Comparison | None, filled_from: str) -> Updates:
        """The columns there are now; selects the first one of a new comparison."""
        names = texts.columns(comparison)
        if comparison is None or not names:
            return {self.refresh: _new_id()}
        feed, _, key = filled_from.rpartition(":")
        if feed == comparison.feed.id and key in {each for _, each in names}:
            return {self.column: gr.Dropdown(choices=names, value=key)}
        first = texts.chosen(comparison, names[0][1])
        assert first is not None, "only columns with a text are listed"
        return self._fill(comparison, first)

    def _fill(self, comparison: Comparison, column: Column) -> Updates:
        """Choose a column, and fill in the settings of its watermark, if it has one."""
        key = str(column.key)
        offered = comparison.model in self.app.labs.names
        return {
            self.column: gr.Dropdown(choices=texts.columns(comparison), value=key),
            self.tokenizer: comparison.model if offered else gr.skip(),
            **self._own_settings(column),
            self.filled_from: _column_id(comparison, key),
            self.refresh: _new_id(),
        }

    def _detect(self, values: Values, comparison: Comparison | None) -> Updates:
        limits, source = self.app.limits, values[self.source]
        column = texts.chosen(comparison, values[self.column])
        own: Updates = {self.own_settings: gr.Button(interactive=bool(self._own_settings(column)))}
        try:
            text = self._text(values, comparison, column)
            if text is None:
                view = detection_view.empty(texts.EMPTY[source])
                return {**own, self.view: view, **self.figures.hide()}
            lab = self.app.labs.lab(values[self.tokenizer])
            found = detect(lab.model, text.text, limits=limits, **self.settings.options(values))
        except PlaygroundError as error:
            return {**own, self.view: detection_view.error(str(error))}
        windows = scan(found)
        files = values[self.detector_files]
        notes = uploaded_detector.notes(lab.model, text.text, files, found, limits)
        notes += _notes(text.column, found.scheme)
        view = detection_view.detection(found, windows, text.name, notes)
        inputs = {Detection: found, ScannedText: ScannedText(found, windows)}
        return {**own, self.view: view, **self.figures.draw(inputs)}

    def _text(
        self, values: Values, comparison: Comparison | None, column: Column | None
    ) -> texts.Text | None:
        source = values[self.source]
        if source == COLUMN:
            if comparison is None or column is None:
                return None
            return texts.of_column(comparison, column, values[self.tokenizer])
        if source == PASTED:
            pasted = values[self.pasted]
            return texts.Text(pasted, "Pasted text") if pasted else None
        path = values[self.file]
        return texts.of_file(path, self.app.limits) if path else None


class _Latest:
    """The detection that each visitor started last. Gradio may run two that start at the same time
    in parallel; the result of the older one is not shown."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._latest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, visitor: str) -> int:
        """The number of a visitor's new detection."""
        with self._lock:
            self._latest[visitor] = number = next(self._numbers)
            self._latest.move_to_end(visitor)
            if len(self._latest) > _MAX_VISITORS:
                self._latest.popitem(last=False)
            return number

    def is_current(self, visitor: str, number: int) -> bool:
        """Whether the visitor has started no other detection since."""
        with self._lock:
            return self._latest.get(visitor, number) == number


def build_detect(app: App) -> DetectSection:
    """The section."""
    source, column, upload, tokenizer, back = _build_source(app)
    pasted = gr.Textbox(
        label="Pasted text",
        placeholder="Paste a text here.",
        lines=4,
        max_lines=4,
        max_length=app.limits.detect_characters,
        interactive=True,
        show_label=False,
        elem_id="detect-pasted",
    )
    with gr.Row(elem_id="detect-key", elem_classes="settings"):
        scheme_and_key = build_scheme_and_key(app.limits)
        other_key = _small_button("Try another key", "detect-other-key")
        other_scheme = _small_button("Try another scheme", "detect-other-scheme")
        own_settings = _small_button("Use the column's settings", "detect-own", visible=False)
    with gr.Accordion("More detector settings", open=False, elem_id="detect-settings"):
        settings = build_detector_settings(app.limits, scheme_and_key)
        upload_detector = gr.UploadButton(
            "Upload a Bayesian detector",
            file_count="multiple",
            file_types=uploaded_detector.FILE_TYPES,
            size="sm",
            visible=False,
            elem_id="detect-upload",
        )
    view = gr.HTML(
        value=detection_view.empty(texts.EMPTY[PASTED]),
        html_template=assets.text("watermark/web/detection.html"),
        css_template=assets.text("watermark/web/detection.css"),
        js_on_load=assets.mount(_SCRIPT),
        apply_default_css=False,
        elem_id="detected",
    )
    return DetectSection(
        app=app,
        source=source,
        column=column,
        pasted=pasted,
        upload=upload,
        file=gr.State(""),
        tokenizer=tokenizer,
        settings=settings,
        own_settings=own_settings,
        other_key=other_key,
        other_scheme=other_scheme,
        upload_detector=upload_detector,
        detector_files=gr.State(()),
        view=view,
        figures=figure_places(views("detect")),
        back=back,
        filled_from=gr.State(""),
        refresh=gr.State(""),
    )


def _build_source(
    app: App,
) -> tuple[gr.Radio, gr.Dropdown, gr.UploadButton, gr.Dropdown, BackButton]:
    with gr.Row(elem_id="detect-source"):
        source = gr.Radio(
            texts.SOURCES, value=PASTED, label="Text from", interactive=True, elem_id="detect-where"
        )
        column = gr.Dropdown(
            [],
            label="Column",
            interactive=True,
            filterable=False,
            visible=False,
            elem_id="detect-column",
        )
        upload = gr.UploadButton(
            "Open a text file",
            file_types=["text"],
            size="sm",
            visible=False,
            elem_id="detect-file",
        )
        tokenizer = gr.Dropdown(
            list(app.labs.names),
            value=app.labs.default,
            label="Tokenizer",
            interactive=True,
            filterable=False,
            elem_id="detect-tokenizer",
        )
        back = build_back_button("detect-back")
    return source, column, upload, tokenizer, back


def _small_button(label: str, id: str, **options: Any) -> gr.Button:
    return gr.Button(label, size="sm", scale=0, min_width=0, elem_id=id, **options)


def _change_event(control: Any) -> Any:
    """The event of a change; Gradio reports no input for pasted text."""
    return control.change if isinstance(control, gr.Textbox) else control.input


def _new_id() -> str:
    return uuid.uuid4().hex


def _column_id(comparison: Comparison, key: str | None) -> str:
    return f"{comparison.feed.id}:{key}"


def _notes(column: Column | None, scheme: str) -> list[str]:
    """Notes about a column's watermark."""
    if column is None or column.trace is None:
        return []
    mark = watermark_of(column.trace.settings)
    if mark is None:
        return ["This column was generated without a watermark."]
    own = getattr(mark, "seeding_scheme", "synthid")
    wrong = [f"This column has a {own} watermark, but the detector looks for {scheme}."]
    return [*(wrong if own != scheme else []), watermark_effect(column.trace.strategy, own)]
