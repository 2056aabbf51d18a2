"""Every use of Gradio's private or undocumented interfaces (Gradio 6.31).

Each function says why it is needed and what to do when Gradio changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from gradio.processing_utils import save_bytes_to_cache
from gradio.utils import get_function_description, get_upload_folder

from engine.errors import PlaygroundError


def set_queue_interval(page: gr.Blocks, seconds: float) -> None:
    """Set how often the queue looks for events.

    Why: Gradio's 1 ms takes 7 % of a core on an idle server.
    If it changes: drop the call; only the idle load rises.
    """
    # private: gr.Blocks._queue.sleep_when_free
    page._queue.sleep_when_free = seconds


def event_payload(event: gr.EventData) -> Mapping[str, Any]:
    """What a script of the page sent with an event. It may have been forged.

    Why: `gr.EventData` gives attribute access only, which fails for a missing key.
    If it changes: read the keys with ``getattr(event, key, None)``.
    """
    # private: gr.EventData._data
    if not isinstance(event._data, Mapping):
        raise PlaygroundError("the page sent an invalid event; reload it")
    return event._data


def save_file(text: str, name: str, component: Component | None = None) -> str:
    """Write a file that Gradio serves, and deletes after a while; returns its path.

    Why: Gradio serves files from its own folders only, and cleans up only those.
    If it changes: write to a folder that is passed as ``allowed_paths`` to `launch`.
    """
    # private: gradio.processing_utils.save_bytes_to_cache, gradio.utils.get_upload_folder
    folder = component.GRADIO_CACHE if component else get_upload_folder()
    return str(Path(save_bytes_to_cache(text.encode(), name, folder)))


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
