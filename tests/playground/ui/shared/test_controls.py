"""Values out of range: shown as they are, or replaced with a message."""

import gradio as gr
import pytest

from engine.settings import Limits
from engine.strategy import find
from playground.ui.shared import controls
from playground.ui.shared.controls import control, fitting


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(controls, "warn", found.append)
    return found


def test_a_default_above_the_servers_limit_becomes_the_limit() -> None:
    beams = find("beam_search").settings["num_beams"]
    field = control(beams, 5, Limits(rows=3))
    assert isinstance(field, gr.Slider) and field.value == 3


def test_a_link_with_a_value_out_of_range_says_which_value_is_used(warnings: list[str]) -> None:
    slider = gr.Slider(0, 1, value=1, label="top_p")
    assert fitting(slider, 2, 1) == 1
    assert warnings == [
        "The link sets top_p to 2; it must be a number from 0 to 1. 1 is used instead."
    ]
    assert fitting(gr.Dropdown(["a", "b"], label="kind"), "c", "a") == "a"
    assert "must be one of a, b. a is used" in warnings[1]


def test_a_link_with_a_value_that_fits_says_nothing(warnings: list[str]) -> None:
    assert fitting(gr.Slider(0, 1, label="top_p"), 0.5, 1) == 0.5
    assert fitting(gr.Slider(0, 1, label="top_p"), None, 1) == 1
    assert fitting(gr.Textbox(label="text"), "words", "") == "words"
    assert not warnings
