"""The tab Watermark: marks looked for, attacked, measured, explained and guessed at.

Knows its sections and in which order they stand. Refuses to know what any of them does: each has a
file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gradio as gr

from engine.settings import Limits
from playground.ui.compare.components import QUICK, Parts
from playground.ui.compare.runs import Runs
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import attack, calibrate, detect, explain, guess


@dataclass(frozen=True)
class Watermark:
    """The parts of the tab, section by section."""

    detect: detect.Detect
    attack: attack.Attack
    calibrate: calibrate.Calibrate
    explain: explain.Explain
    game: guess.Game
    each: Mapping[str, gr.Tab]  # by its id
    opened: gr.State  # the id of the open one


def tab(labs: Labs, limits: Limits) -> Watermark:
    """The tab, for the models that ``labs`` has."""
    with gr.Tabs(elem_id="watermark-tabs", overflow_behavior="wrap"):
        with gr.Tab("Detect", id="detect") as of_detect:
            looked = detect.section(labs, limits)
        with gr.Tab("Attack", id="attack") as of_attack:
            attacked = attack.section()
        with gr.Tab("Calibrate", id="calibrate") as of_calibrate:
            calibrated = calibrate.section()
        with gr.Tab("Explain", id="explain") as of_explain:
            explained = explain.section()
        with gr.Tab("Guess", id="guess") as of_guess:
            guessed = guess.section()
    each = {"detect": of_detect, "attack": of_attack, "calibrate": of_calibrate}
    each |= {"explain": of_explain, "guess": of_guess}
    sections = (looked, attacked, calibrated, explained, guessed)
    return Watermark(*sections, each, gr.State("detect"))


def connect(parts: Parts, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect every section."""
    sections = parts.tabs.watermark
    for name, each in sections.each.items():
        each.select(_naming(name), None, sections.opened, **QUICK)
    detect.connect(parts, sections.detect, labs, limits, runs)
    attack.connect(parts, sections.attack, labs, limits, runs)
    calibrate.connect(parts, sections.calibrate, labs, limits, runs)
    explain.connect(parts, sections.explain, labs, limits, runs)
    guess.connect(parts, sections.game, labs, limits, runs)


def _naming(name: str) -> Callable[[], str]:
    def named() -> str:
        return name

    return named
