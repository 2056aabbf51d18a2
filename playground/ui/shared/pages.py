"""What a page of the app is, what it is given, and what the compare page shares with others.

All pages are tabs of one Gradio page, so that switching is instant and keeps what was entered. Each
has an address of its own, which the browser shows and the server answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gradio as gr
from gradio.blocks import Block

from engine.settings import Limits
from playground import Playground
from playground.ui.shared.comparison import Column, Comparison
from playground.ui.shared.events import Event, Updates, Values
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.model_picker import ModelPicker
from playground.ui.shared.monitoring import Monitoring
from playground.ui.shared.run_queue import RunQueue

COMPARE = "compare"  # the id of the page with the columns


@dataclass(frozen=True)
class App:
    """What every page is built with."""

    blocks: gr.Blocks
    labs: Labs
    limits: Limits
    model: ModelPicker
    share: gr.HTML  # the button of `shared.share`
    browser: gr.HTML  # the hidden component of `shared.browser`
    queue: RunQueue
    monitoring: Monitoring


class SentColumn(NamedTuple):
    """A column that the visitor opens on another page. Its run has ended."""

    column: Column
    comparison: Comparison


@dataclass(frozen=True)
class ComparisonEvents:
    """What other pages may use of the compare page."""

    current: Callable[[gr.Request], Comparison | None]  # the visitor's comparison
    finished: Event  # all runs have ended
    pinned: Event  # another position in the texts was pinned
    sent: Event  # a column was sent to another page
    # The column of an event ``sent``; None if it was sent to another page than this one.
    sent_column: Callable[[str, gr.EventData, gr.Request], SentColumn | None]
    back_from: Callable[[str], str]  # the ``js`` that returns to the column sent to a page


class LinkedForm(Protocol):
    """A form whose values become part of a link."""

    @property
    def inputs(self) -> set[Block]:
        """The fields."""

    def changes(self, lab: Playground, values: Values) -> dict[str, Any]:
        """The values that differ from the initial ones, by field name."""

    @property
    def restorable(self) -> list[Block]:
        """The components that `restore` updates."""

    def restore(self, changes: Mapping[str, Any]) -> Updates:
        """Show the values of a link; those that do not fit get their initial value."""


class Page(Protocol):
    """A page that was built, in a tab of its own."""

    def connect(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Connect the page's events."""

    @property
    def linked_form(self) -> LinkedForm | None:
        """The form that a link restores, if the page has one."""


@dataclass(frozen=True)
class Pages:
    """All pages; ``built`` are those besides the compare page."""

    each: Mapping[str, gr.Tab]
    built: Mapping[str, Page]

    @property
    def linked_forms(self) -> dict[str, LinkedForm]:
        """The forms of other pages that a link restores."""
        forms = {name: page.linked_form for name, page in self.built.items()}
        return {name: form for name, form in forms.items() if form is not None}


class PageSpec(NamedTuple):
    """How a page is listed. ``id`` is also the name of its values in a link."""

    id: str
    path: str  # of its address
    title: str
    build: Callable[[App], Page]
    style: str  # its stylesheet, below ``playground/ui``
