"""Every use of Gradio's private or undocumented interfaces (Gradio 6.31).

Each function says why it is needed and what to do when Gradio changes it.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from gradio.utils import get_function_description

# Addresses of Gradio's own client, for the middleware of this package.
# private: routes of gradio.routes.App
SUBMIT = "/gradio_api/queue/join"  # submits an event
RESULTS = "/gradio_api/queue/data"  # the stream of a page's results
HEARTBEAT = "/gradio_api/heartbeat/"  # followed by the session


def set_queue_interval(page: gr.Blocks, seconds: float) -> None:
    """Set how often the queue looks for events.

    Why: Gradio's 1 ms takes 7 % of a core on an idle server.
    If it changes: drop the call; only the idle load rises.
    """
    # private: gr.Blocks._queue.sleep_when_free
    page._queue.sleep_when_free = seconds


def describe_arguments(page: gr.Blocks, endpoint: Dependency, function: Any) -> None:
    """Put the docstring's text for each argument on the API page.

    Why: Gradio reads these texts for MCP tools only.
    If it changes: drop the call; the API page then shows types without texts.
    """
    # private: get_function_description, Dependency["inputs"], gr.Blocks.blocks
    _, arguments, _ = get_function_description(function)
    texts = [text for name, text in arguments.items() if name != "request"]
    for id, text in zip(endpoint["inputs"], texts, strict=True):
        argument = page.blocks[id]
        assert isinstance(argument, Component)
        argument.api_info()["additional_description"] = text


def summary(function: Any) -> str:
    """The description in a function's docstring, as Gradio reads it for the API page."""
    # private: get_function_description
    return get_function_description(function)[0]
