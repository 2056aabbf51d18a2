"""The private interfaces of Gradio that docs/upgrading.md lists still exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import gradio as gr
import pytest
from gradio import processing_utils, utils
from gradio.components import Component
from gradio.queueing import Queue

from tests.engine.test_private_interfaces import rows


def queue_interval() -> None:
    assert "self.sleep_when_free" in inspect.getsource(Queue.__init__)
    assert "self._queue" in inspect.getsource(gr.Blocks)


def event_data() -> None:
    assert gr.EventData(None, {"at": 3})._data == {"at": 3}


def files() -> None:
    assert callable(processing_utils.save_bytes_to_cache) and utils.get_upload_folder()
    assert hasattr(Component, "GRADIO_CACHE") or gr.Textbox().GRADIO_CACHE


def description() -> None:
    def function(prompt: str) -> None:
        """Compare.

        Args:
            prompt: the text to continue
        """

    text, arguments, _ = utils.get_function_description(function)
    assert text == "Compare." and arguments == {"prompt": "the text to continue"}


CHECKS: dict[str, Callable[[], None]] = {
    "Blocks._queue.sleep_when_free": queue_interval,
    "EventData._data": event_data,
    "processing_utils.save_bytes_to_cache": files,
    "utils.get_function_description": description,
}


def test_every_documented_interface_is_tested() -> None:
    assert rows("Gradio").keys() == CHECKS.keys()


@pytest.mark.parametrize("interface", CHECKS)
def test_interface_behaves_as_documented(interface: str) -> None:
    _, names, where, why, remedy, _ = rows("Gradio")[interface].split("|")
    try:
        CHECKS[interface]()
    except Exception as error:
        pytest.fail(
            f"{names.strip()} has changed ({error!r}). Used in:{where}Why:{why}What to do:{remedy}"
        )
