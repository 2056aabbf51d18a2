"""Types and options for Gradio event listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError

T = TypeVar("T")

Values = Mapping[Block, Any]  # by component, as Gradio passes a set of inputs
Updates = dict[Block, Any]  # by component, as a listener returns them
Event = Callable[..., Any]  # such as `button.click`: called with a listener, inputs and outputs

# Gradio copies every component that may show progress, with all its children, for each message of
# each event. No component of this app shows it.
QUIET: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "show_progress_on": (),
}
# For short listeners. They are queued because Gradio reports a changed `gr.State` only then.
QUICK: dict[str, Any] = {**QUIET, "concurrency_limit": None}
# By default Gradio drops an event while an earlier one of the same listener is pending.
EVERY: dict[str, Any] = {**QUICK, "trigger_mode": "multiple"}
LATEST: dict[str, Any] = {**QUICK, "trigger_mode": "always_last"}


def visitor(request: gr.Request) -> str:
    """The session of the visitor who triggered an event."""
    return str(request.session_hash)


def event_data(event: gr.EventData, *names: str) -> dict[str, Any]:
    """What a script of the page sent with an event; it may be forged. A missing value is None."""
    try:
        return {name: getattr(event, name, None) for name in names}
    except TypeError as error:
        raise PlaygroundError("the page sent an invalid event; reload it") from error


class View(NamedTuple):
    """What a visitor sees: the ids of the open page and of the open tab below the columns."""

    page: str
    tab: str


def open_view(event: gr.EventData) -> View:
    """What was open when a script of the page triggered an event."""
    return View(**{name: str(value) for name, value in event_data(event, *View._fields).items()})


def always(value: str) -> Callable[[], str]:
    """A listener that returns a constant."""

    def listener() -> str:
        return value

    return listener


@dataclass(frozen=True, eq=False)
class StateValue(Generic[T]):
    """A value for a `gr.State`: Gradio hashes it, and this is compared by identity."""

    value: T
