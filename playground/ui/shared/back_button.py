"""The button that returns from another page to the column it was opened with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from playground.ui.shared.events import EVERY, QUIET, Updates
from playground.ui.shared.pages import ComparisonEvents, SentColumn


@dataclass(frozen=True)
class BackButton:
    """Hidden until a column is sent to the page, and again after the next comparison."""

    button: gr.Button
    feed: gr.State  # the id of the comparison that the column is part of

    @property
    def outputs(self) -> list[Block]:
        """The components that `show` updates."""
        return [self.button, self.feed]

    def show(self, sent: SentColumn) -> Updates:
        """Name the column."""
        label = f"Back to {sent.column.label}"
        return {
            self.button: gr.Button(label, visible=True),
            self.feed: sent.comparison.feed.id,
        }

    def connect(self, page: str, comparison: ComparisonEvents) -> None:
        """Connect the button of a page."""

        def hide(feed: str, request: gr.Request) -> Any:
            current = comparison.current(request)
            if current is not None and current.feed.id == feed:
                return gr.skip()
            return gr.Button(visible=False)

        self.button.click(None, js=comparison.back_from(page), **QUIET)
        comparison.finished(hide, self.feed, self.button, **EVERY)


def build_back_button(elem_id: str) -> BackButton:
    """The button."""
    button = gr.Button("Back", size="sm", scale=0, min_width=0, visible=False, elem_id=elem_id)
    return BackButton(button, gr.State(""))
