"""Errors a visitor may read, shown as messages on the page."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError

FAILED = "Internal error. The server log has the details."


def warn(text: str) -> None:
    """Show a warning. It is escaped: it may quote input, and Gradio renders messages as HTML."""
    gr.Warning(html.escape(text), duration=20)


def shows_errors(listener: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a listener: a `PlaygroundError` becomes a warning, and no component changes."""

    @wraps(listener)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return listener(*args, **kwargs)
        except PlaygroundError as error:
            warn(str(error))
            return gr.skip()

    return wrapped
