"""The tab Watermark: marks looked for, attacked, measured, explained and guessed at.

Knows its sections and in which order they stand. Refuses to know what any of them does: each has a
file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from engine.settings import Limits
from playground.ui.handlers import Runs
from playground.ui.loading import Labs
from playground.ui.parts import Parts
from playground.ui.watermark import attack, calibrate, detect, explain, game


@dataclass(frozen=True)
class Watermark:
    """The parts of the tab, section by section."""

    detect: detect.Detect
    attack: attack.Attack
    calibrate: calibrate.Calibrate
    explain: explain.Explain
    game: game.Game


def tab(labs: Labs, limits: Limits) -> Watermark:
    """The tab, for the models that ``labs`` has."""
    with gr.Tabs(elem_id="watermark-tabs", overflow_behavior="wrap"):
        with gr.Tab("Detect", id="detect"):
            looked = detect.section(labs, limits)
        with gr.Tab("Attack", id="attack"):
            attacked = attack.section()
        with gr.Tab("Calibrate", id="calibrate"):
            calibrated = calibrate.section()
        with gr.Tab("Explain", id="explain"):
            explained = explain.section()
        with gr.Tab("Guess", id="guess"):
            guessed = game.section()
    return Watermark(looked, attacked, calibrated, explained, guessed)


def connect(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect every section."""
    sections = parts.tabs.watermark
    detect.connect(parts, sections.detect, labs, limits, runs)
    attack.connect(parts, sections.attack, labs, limits, runs)
    calibrate.connect(parts, sections.calibrate, labs, limits, runs)
    explain.connect(parts, sections.explain, labs, limits, runs)
    game.connect(parts, sections.game, labs, limits, runs)
