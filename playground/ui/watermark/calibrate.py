"""The section Calibrate: what a detector is worth, measured over many texts.

Knows the parts of the section. Refuses to know the rest of the tab.
"""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from engine.settings import Limits
from playground.ui.handlers import Runs
from playground.ui.loading import Labs
from playground.ui.parts import Parts


@dataclass(frozen=True)
class Calibrate:
    """The parts of the section."""

    words: gr.Markdown


def section() -> Calibrate:
    """The section."""
    return Calibrate(gr.Markdown("Calibrations come here.", elem_classes="to-come"))


def connect(parts: Parts, section: Calibrate, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
