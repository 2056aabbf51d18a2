"""The detector's settings: the scheme, its key and parameters, and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import Limits, Setting
from engine.watermark import config as marks
from engine.watermark.statistics import Z_THRESHOLD, normal_tail
from playground.ui.shared.controls import as_text, control, read, shown
from playground.ui.shared.events import Updates, Values

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
    ("synthid: tournament sampling", "synthid"),
]
# Of the field in which a threshold is set.
THRESHOLD_HELP = (
    "The z-score above which a text counts as marked. By default "
    f"{Z_THRESHOLD:g}, as in transformers: about 1 in {round(1 / normal_tail(Z_THRESHOLD), -1):g} "
    "unmarked texts exceeds it by chance."
)
_KEY_OFFSET = 7919  # added for another key


@dataclass(frozen=True)
class DetectorSettings:
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
        """All controls."""
        own = [*self.green.values(), *self.synthid.values()]
        return [self.scheme, self.threshold, self.once, *own]

    @property
    def outputs(self) -> list[Block]:
        """The components that the methods below update."""
        own = [*self.green.values(), *self.synthid.values()]
        return [self.scheme, *own, self.green_row, self.synthid_row]

    def options(self, values: Values) -> dict[str, Any]:
        """The arguments of `engine.watermark.detector.detect`."""
        scheme = values[self.scheme]
        settings, controls = self._of(scheme)
        given = {name: read(settings[name], values[one]) for name, one in controls.items()}
        options = {"z_threshold": float(values[self.threshold])}
        own = {name: value for name, value in given.items() if value is not None}
        return {"scheme": scheme, "ignore_repeated": bool(values[self.once]), **options, **own}

    def fill(self, config: marks.Config) -> Updates:
        """Show the settings of a watermark."""
        fields = config.to_dict()
        scheme = fields.get("seeding_scheme", "synthid")
        settings, controls = self._of(scheme)
        filled: Updates = {
            one: _value(settings[name], one, fields[name])
            for name, one in controls.items()
            if name in fields
        }
        return {self.scheme: scheme, **filled, **self.show_scheme(scheme)}

    def show_scheme(self, scheme: str) -> Updates:
        """Show the controls of a scheme."""
        synthid = scheme == "synthid"
        return {
            self.green_row: gr.Row(visible=not synthid),
            self.synthid_row: gr.Row(visible=synthid),
        }

    def other_key(self, values: Values) -> Updates:
        """Change the key."""
        scheme = values[self.scheme]
        name = "keys" if scheme == "synthid" else "hashing_key"
        settings, controls = self._of(scheme)
        now = read(settings[name], values[controls[name]])
        default = settings[name].default
        if name == "keys":
            given = now if isinstance(now, list) else []
            whole = given and all(type(key) is int for key in given)
            other: Any = [key + _KEY_OFFSET for key in (given if whole else default)]
        else:
            other = (now if type(now) is int else default) + _KEY_OFFSET
        return {controls[name]: _value(settings[name], controls[name], other)}

    def other_scheme(self, values: Values) -> Updates:
        """Change to the next scheme."""
        place = marks.SCHEMES.index(values[self.scheme])
        scheme = marks.SCHEMES[(place + 1) % len(marks.SCHEMES)]
        return {self.scheme: scheme, **self.show_scheme(scheme)}

    def _of(self, scheme: str) -> tuple[Mapping[str, Setting], Mapping[str, Component]]:
        if scheme == "synthid":
            return marks.SYNTHID, self.synthid
        return marks.GREEN_LIST, self.green


def build_detector_settings(limits: Limits) -> DetectorSettings:
    """The controls, with the defaults of a watermark."""
    with gr.Row(elem_classes="settings detection"):
        scheme = gr.Dropdown(
            _SCHEMES,
            value="lefthash",
            label="scheme",
            interactive=True,
            filterable=False,
            elem_id="detect-scheme",
        )
        threshold = gr.Slider(
            *(0, 12),
            value=Z_THRESHOLD,
            step=0.1,
            label="z_threshold",
            info=THRESHOLD_HELP,
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
    return DetectorSettings(scheme, threshold, once, green, synthid, green_row, synthid_row)


def _control(setting: Setting, limits: Limits) -> Component:
    return control(setting, setting.default, limits, elem_id=f"detect-{setting.name}")


def _value(setting: Setting, one: Component, value: Any) -> Any:
    value = shown(setting, value)
    return as_text(value) if isinstance(one, gr.Textbox) else value
