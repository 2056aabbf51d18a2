"""What stands where in the section Detect.

Knows the parts of the section and their places. Refuses to know what a change of one leads to.
"""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr
from gradio.blocks import Block

from engine.settings import Limits
from playground.ui import assets
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import detector_settings, text_source, uploaded_detector
from playground.ui.watermark.detector_settings import Fields
from visualizers import views


@dataclass(frozen=True)
class Detect:
    """The parts of the section."""

    source: gr.Radio
    column: gr.Dropdown
    pasted: gr.Textbox
    upload: gr.UploadButton
    file: gr.State  # where the uploaded file lies
    tokenizer: gr.Dropdown
    fields: Fields
    own: gr.Button
    other_key: gr.Button
    other_scheme: gr.Button
    bring: gr.UploadButton
    brought: gr.State  # where the files of a trained detector lie
    view: gr.HTML
    groups: tuple[gr.Column, ...]
    plots: tuple[gr.Plot, ...]
    seen: gr.State  # the board and the column whose settings were taken over
    asked: gr.State  # changes where somebody else than the visitor has changed a control

    @property
    def inputs(self) -> set[Block]:
        """All that a detection depends on."""
        text = {self.source, self.column, self.pasted, self.file, self.tokenizer}
        return {*text, self.brought, *self.fields.all}

    @property
    def prefilled(self) -> list[Block]:
        """What another column may change."""
        return [self.column, self.tokenizer, *self.fields.outputs, self.seen, self.asked]


def section(labs: Labs, limits: Limits) -> Detect:
    """The section."""
    where, column, upload, tokenizer = _source(labs)
    pasted = gr.Textbox(
        label="Pasted text",
        lines=4,
        max_lines=10,
        max_length=limits.detect_characters,
        visible=False,
        interactive=True,
        elem_id="detect-pasted",
    )
    with gr.Accordion("What the detector knows", open=True, elem_id="detect-settings"):
        known = detector_settings.draw(limits)
        with gr.Row(elem_id="detect-tries"):
            other_key = gr.Button("Another key", size="sm", elem_id="detect-other-key")
            other_scheme = gr.Button("Another scheme", size="sm", elem_id="detect-other-scheme")
            own = gr.Button("The column's own settings", size="sm", elem_id="detect-own")
            bring = gr.UploadButton(
                uploaded_detector.BUTTON,
                file_count="multiple",
                file_types=uploaded_detector.KINDS,
                size="sm",
                visible=False,
                elem_id="detect-bring",
            )
    view = _view()
    groups, plots = _figures()
    return Detect(
        source=where,
        column=column,
        pasted=pasted,
        upload=upload,
        file=gr.State(""),
        tokenizer=tokenizer,
        fields=known,
        own=own,
        other_key=other_key,
        other_scheme=other_scheme,
        bring=bring,
        brought=gr.State(()),
        view=view,
        groups=groups,
        plots=plots,
        seen=gr.State(""),
        asked=gr.State(""),
    )


def _figures() -> tuple[tuple[gr.Column, ...], tuple[gr.Plot, ...]]:
    groups, plots = [], []
    with gr.Row(elem_classes="figures", equal_height=False):
        for view in views("detect"):
            with gr.Column(visible=False, min_width=320, elem_id=f"figure-{view.id}") as group:
                gr.Markdown(view.summary, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
            groups.append(group)
    return tuple(groups), tuple(plots)


def _source(labs: Labs) -> tuple[gr.Radio, gr.Dropdown, gr.UploadButton, gr.Dropdown]:
    with gr.Row(elem_id="detect-source"):
        where = gr.Radio(
            text_source.SOURCES,
            value=text_source.COLUMN,
            label="Look at",
            interactive=True,
            elem_id="detect-where",
        )
        column = gr.Dropdown(
            [], label="Column", interactive=True, filterable=False, elem_id="detect-column"
        )
        upload = gr.UploadButton(
            "Open a text file",
            file_types=["text"],
            size="sm",
            visible=False,
            elem_id="detect-file",
        )
        tokenizer = gr.Dropdown(
            list(labs.names),
            value=labs.usual,
            label="Read with the tokenizer of",
            interactive=True,
            filterable=False,
            elem_id="detect-tokenizer",
        )
    return where, column, upload, tokenizer


def _view() -> gr.HTML:
    """The verdict, the tokens and the counts; its value is what `told` gives."""
    return gr.HTML(
        value="",
        html_template=assets.text("watermark/web/detection.html"),
        css_template=assets.text("watermark/web/detection.css"),
        js_on_load=assets.mount("watermark/web/detection.js"),
        apply_default_css=False,
        elem_id="detected",
    )
