"""What a person did wrong, as words on the page: the one place where a `PlaygroundError` ends.

Knows Gradio's messages. Refuses to know what was wrong.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError


def warn(words: str) -> None:
    """Show a message; it may quote anybody, and the toast reads HTML."""
    gr.Warning(html.escape(words), duration=20)


def spoken(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but what a person may read becomes a message and everything stays as it is."""

    @wraps(function)
    def speaking(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except PlaygroundError as error:
            warn(str(error))
            return gr.skip()

    return speaking
