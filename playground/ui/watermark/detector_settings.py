"""What a detector is told: the scheme, its key and the rest, and what counts as found.

Knows the controls of these settings, how they are filled and read. Refuses to detect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import Limits, Setting
from engine.watermark import config as marks
from playground.ui.compare.components import Values
from playground.ui.shared.controls import control, read, shown, spelled

GREEN = ("greenlist_ratio", "hashing_key", "context_width")
SYNTHID = (
    "keys",
    "ngram_len",
    "context_history_size",
    "sampling_table_size",
    "sampling_table_seed",
)
_SCHEMES = [
    ("lefthash: green lists", "lefthash"),
    ("selfhash: green lists", "selfhash"),
    ("synthid: a tournament", "synthid"),
]
_ANOTHER = 7919  # a prime: how far another key is from this one

Drawn = dict[Block, Any]


@dataclass(frozen=True)
class Fields:
    """The controls."""

    scheme: gr.Dropdown
    threshold: gr.Slider
    once: gr.Checkbox
    green: Mapping[str, Component]
    synthid: Mapping[str, Component]
    green_row: gr.Row
    synthid_row: gr.Row

    @property
    def all(self) -> list[Any]:
        """Every control."""
        own = [*self.green.values(), *self.synthid.values()]
        return [self.scheme, self.threshold, self.once, *own]

    @property
    def outputs(self) -> list[Block]:
        """What `fill` and `scheme_shown` give values for."""
        own = [*self.green.values(), *self.synthid.values()]
        return [self.scheme, *own, self.green_row, self.synthid_row]

    def asked(self, values: Values) -> dict[str, Any]:
        """The options of `engine.watermark.detector.detect` that the controls show."""
        scheme = values[self.scheme]
        settings, controls = self._of(scheme)
        given = {name: read(settings[name], values[one]) for name, one in controls.items()}
        options = {"z_threshold": float(values[self.threshold])}
        own = {name: value for name, value in given.items() if value is not None}
        return {"scheme": scheme, "ignore_repeated": bool(values[self.once]), **options, **own}

    def fill(self, config: marks.Config) -> Drawn:
        """What the controls show for a watermark that somebody wrote with."""
        told = config.to_dict()
        scheme = told.get("seeding_scheme", "synthid")
        settings, controls = self._of(scheme)
        filled: Drawn = {
            one: _value(settings[name], one, told[name])
            for name, one in controls.items()
            if name in told
        }
        return {self.scheme: scheme, **filled, **self.scheme_shown(scheme)}

    def scheme_shown(self, scheme: str) -> Drawn:
        """The rows that a scheme has settings in."""
        synthid = scheme == "synthid"
        return {
            self.green_row: gr.Row(visible=not synthid),
            self.synthid_row: gr.Row(visible=synthid),
        }

    def another_key(self, values: Values) -> Drawn:
        """The controls with a key that nobody used."""
        scheme = values[self.scheme]
        name = "keys" if scheme == "synthid" else "hashing_key"
        settings, controls = self._of(scheme)
        now = read(settings[name], values[controls[name]])
        usual = settings[name].default
        if name == "keys":
            given = now if isinstance(now, list) else []
            whole = given and all(type(key) is int for key in given)
            other: Any = [key + _ANOTHER for key in (given if whole else usual)]
        else:
            other = (now if type(now) is int else usual) + _ANOTHER
        return {controls[name]: _value(settings[name], controls[name], other)}

    def another_scheme(self, values: Values) -> Drawn:
        """The controls with the next scheme."""
        place = marks.SCHEMES.index(values[self.scheme])
        scheme = marks.SCHEMES[(place + 1) % len(marks.SCHEMES)]
        return {self.scheme: scheme, **self.scheme_shown(scheme)}

    def _of(self, scheme: str) -> tuple[Mapping[str, Setting], Mapping[str, Component]]:
        if scheme == "synthid":
            return marks.SYNTHID, self.synthid
        return marks.GREEN_LIST, self.green


def draw(limits: Limits, threshold: float = 3.0) -> Fields:
    """The controls, with what a watermark has unless somebody says otherwise."""
    with gr.Row(elem_classes="settings detection"):
        scheme = gr.Dropdown(
            _SCHEMES,
            value="lefthash",
            label="scheme",
            interactive=True,
            filterable=False,
            elem_id="detect-scheme",
        )
        asked = gr.Slider(
            *(0, 12),
            value=threshold,
            step=0.1,
            label="z_threshold",
            info="The z-score above which a text counts as marked.",
            interactive=True,
            elem_id="detect-z_threshold",
        )
        once = gr.Checkbox(
            False,
            label="ignore_repeated",
            info="Count each n-gram only once.",
            interactive=True,
            elem_id="detect-ignore_repeated",
        )
    with gr.Row(elem_classes="settings detection") as green_row:
        green = {name: _control(marks.GREEN_LIST[name], limits) for name in GREEN}
    with gr.Row(elem_classes="settings detection", visible=False) as synthid_row:
        synthid = {name: _control(marks.SYNTHID[name], limits) for name in SYNTHID}
    return Fields(scheme, asked, once, green, synthid, green_row, synthid_row)


def _control(setting: Setting, limits: Limits) -> Component:
    return control(setting, None, setting.default, limits, elem_id=f"detect-{setting.name}")


def _value(setting: Setting, one: Component, value: Any) -> Any:
    value = shown(setting, value)
    return spelled(value) if isinstance(one, gr.Textbox) else value
