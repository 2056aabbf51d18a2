"""The parts of the page that events connect, by name.

Knows names alone. Refuses to know where a part stands and what happens to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from playground.ui.compare.charts_tab import Across
from playground.ui.compare.export_tab import Take
from playground.ui.shared.figures import Figures

if TYPE_CHECKING:  # its sections name these parts themselves
    from playground.ui.speculative import Speculative
    from playground.ui.watermark import Watermark

KINDS = ("text to continue", "message to answer")
IN_SIGHT = ("max_new_tokens", "seed")  # the shared settings that are not folded away

Values = Mapping[Block, Any]

# What may show an event's progress is copied by Gradio, with all there is inside, at every message
# of every event: so nothing may.
QUIET: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "show_progress_on": (),
}
# Through the queue, though they are quick: Gradio tells of a changed state only there.
QUICK: dict[str, Any] = {**QUIET, "concurrency_limit": None}
# One after the other: a dropdown tells of a choice twice, and the second time nothing may change,
# as the cards would be drawn twice.
DEALING: dict[str, Any] = {**QUIET, "concurrency_limit": 1, "concurrency_id": "deck"}
# Runs share one limit, whatever began them: the page's usual one. A press right after the last word
# of a run counts, even if Gradio has not heard of its end; who has one going on gets no other.
RUNNING: dict[str, Any] = {
    **QUIET,
    "concurrency_limit": "default",
    "concurrency_id": "model",
    "trigger_mode": "multiple",
}


@dataclass(frozen=True)
class Form:
    """What a visitor fills in, but for the cards."""

    prompt: gr.Textbox
    kind: gr.Radio
    shared: Mapping[str, Component]

    @property
    def fields(self) -> list[Component]:
        """Every field."""
        return [self.prompt, self.kind, *self.shared.values()]


@dataclass(frozen=True)
class Actions:
    """The buttons above the columns."""

    run: gr.Button
    step: gr.Button
    stop: gr.Button
    add: gr.Button

    @property
    def switched(self) -> list[Block]:
        """The buttons that are usable at times, as `buttons` switches them."""
        return [self.run, self.step, self.stop]


def buttons(*, running: bool) -> tuple[gr.Button, ...]:
    """Run and Step, or Stop: what is usable now."""
    return (
        gr.Button(interactive=not running),
        gr.Button(interactive=not running),
        gr.Button(interactive=running),
    )


@dataclass(frozen=True)
class Tabs:
    """The tabs below the columns."""

    all: gr.Tabs
    opened: gr.State  # the id of the open one
    each: Mapping[str, gr.Tab]
    why: Figures
    across: Across
    speculative: Speculative
    watermark: Watermark
    take: Take


@dataclass(frozen=True)
class Parts:
    """Everything that events connect."""

    model: gr.Dropdown
    loading: gr.Markdown
    loaded: gr.State  # the name of the model that is there, empty while there is none
    presets: list[gr.Button]
    point: gr.Markdown
    form: Form
    deck: gr.State
    actions: Actions
    live: gr.HTML
    tabs: Tabs
    browser: gr.HTML


def visitor(request: gr.Request) -> str:
    """Whose event this is."""
    return str(request.session_hash)
