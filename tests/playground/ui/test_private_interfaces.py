"""The private interfaces of Gradio that docs/upgrading.md lists still exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import gradio as gr
import pytest
from gradio import routes, utils
from gradio.queueing import Queue
from gradio.route_utils import API_PREFIX

from playground.ui.shared import gradio_internals
from tests.engine.test_private_interfaces import rows


def queue_interval() -> None:
    assert "self.sleep_when_free" in inspect.getsource(Queue.__init__)
    assert "self._queue" in inspect.getsource(gr.Blocks)


def client_addresses() -> None:
    source = inspect.getsource(routes)
    for address in (gradio_internals.SUBMIT, gradio_internals.RESULTS, gradio_internals.HEARTBEAT):
        assert f'("{address.removeprefix(API_PREFIX)}' in source, address


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
    "/gradio_api/queue/join": client_addresses,
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
