"""Builds the Watermark page and connects its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from playground.ui.shared.events import EVERY, Updates, always
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.pages import App, ComparisonEvents
from playground.ui.watermark.attack import AttackSection, build_attack
from playground.ui.watermark.calibrate import CalibrateSection, build_calibrate
from playground.ui.watermark.detect import ONE_FILL, DetectSection, build_detect
from playground.ui.watermark.explain import ExplainSection, build_explain
from playground.ui.watermark.guess import GuessSection, build_guess


@dataclass(frozen=True)
class WatermarkPage:
    """The sections of the page, each in a tab."""

    detect: DetectSection
    attack: AttackSection
    explain: ExplainSection
    calibrate: CalibrateSection
    guess: GuessSection
    tabs: Mapping[str, gr.Tab]
    sections: gr.Tabs  # all of them
    open_section: gr.State  # the id of its tab
    linked_form: None = None

    def connect(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Connect all sections."""
        for name, section in self.tabs.items():
            section.select(always(name), None, self.open_section, **EVERY)
        self.detect.connect(tab, comparison)
        self._connect_sent(str(tab.id), comparison)
        self.attack.connect(tab, comparison)
        self.explain.connect(tab, self.tabs["explain"], self.open_section, comparison)
        self.calibrate.connect()
        self.guess.connect()

    def _connect_sent(self, page: str, comparison: ComparisonEvents) -> None:
        """Show a column that is sent to this page."""

        @shows_errors
        def receive(event: gr.EventData, request: gr.Request) -> Updates:
            sent = comparison.sent_column(page, event, request)
            if sent is None:
                return {self.open_section: gr.skip()}
            opened = {self.sections: gr.Tabs(selected="detect"), self.open_section: "detect"}
            return {**opened, **self.detect.receive(sent)}

        outputs = [self.sections, self.open_section, *self.detect.received]
        comparison.sent(receive, None, outputs, **ONE_FILL)


def build(app: App) -> WatermarkPage:
    """Build the page."""
    tabs: dict[str, gr.Tab] = {}
    with gr.Tabs(elem_id="watermark-tabs", overflow_behavior="wrap") as sections:
        with gr.Tab("Detect", id="detect") as tabs["detect"]:
            detect = build_detect(app)
        with gr.Tab("Attack", id="attack") as tabs["attack"]:
            attack = build_attack(app)
        with gr.Tab("Explain", id="explain") as tabs["explain"]:
            explain = build_explain(app)
        with gr.Tab("Calibrate", id="calibrate") as tabs["calibrate"]:
            calibrate = build_calibrate(app)
        with gr.Tab("Guess", id="guess") as tabs["guess"]:
            guess = build_guess(app)
    return WatermarkPage(
        *(detect, attack, explain, calibrate, guess),
        *(tabs, sections, gr.State("detect")),
    )
