"""The section Attack: a marked text is changed, and what is left of its score.

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
class Attack:
    """The parts of the section."""

    words: gr.Markdown


def section() -> Attack:
    """The section."""
    return Attack(gr.Markdown("Attacks come here.", elem_classes="to-come"))


def connect(parts: Parts, section: Attack, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
