"""The section Explain.

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
class Explain:
    """The parts of the section."""

    words: gr.Markdown


def section() -> Explain:
    """The section."""
    return Explain(gr.Markdown("Explain comes here.", elem_classes="to-come"))


def connect(parts: Parts, section: Explain, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
