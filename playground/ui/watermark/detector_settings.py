"""The detector's settings: the scheme, its key and parameters, and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component

from engine.settings import Limits, Setting
from engine.watermark import config as marks
from engine.watermark.statistics import Z_THRESHOLD, normal_tail
from playground.ui.shared.controls import as_text, control, read, shown
from playground.ui.shared.events import Updates, Values

# The parameters of each scheme besides its key.
_MORE_GREEN = ("greenlist_ratio", "context_width")
_MORE_SYNTHID = (
    "ngram_len",
    "context_history_size",
    "sampling_table_size",
    "sampling_table_seed",
)
_SCHEMES = [
    ("lefthash: green list", "lefthash"),
    ("selfhash: green list", "selfhash"),
    ("synthid: tournament", "synthid"),
]
# Of the field in which a threshold is set.
THRESHOLD_HELP = (
    "The z-score above which a text counts as marked. By default "
    f"{Z_THRESHOLD:g}, as in transformers: about 1 in {round(1 / normal_tail(Z_THRESHOLD), -1):g} "
    "unmarked texts exceeds it by chance."
)
_KEY_OFFSET = 7919  # added for another key


class SchemeAndKey(NamedTuple):
    """The controls a verdict refers to; only the key of the scheme is shown."""

    scheme: gr.Dropdown
    hashing_key: Component  # of green lists
    keys: Component  # of SynthID


@dataclass(frozen=True)
class DetectorSettings:
    """The controls. ``green`` and ``synthid`` are those of each scheme, by name."""

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
        return [self.scheme, *own, *self.rows]

    @property
    def rows(self) -> list[Block]:
        """The components that `show_scheme` shows or hides."""
        return [self.green["hashing_key"], self.synthid["keys"], self.green_row, self.synthid_row]

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
        return {self.scheme: scheme, **filled}

    def reset(self) -> Updates:
        """Show the defaults of a watermark."""
        own = [*self.green.values(), *self.synthid.values()]
        return {self.scheme: self.scheme.value, **{one: one.value for one in own}}

    def show_scheme(self, scheme: str) -> Updates:
        """Show the controls of a scheme."""
        synthid = scheme == "synthid"
        return {
            self.green["hashing_key"]: gr.Textbox(visible=not synthid),
            self.synthid["keys"]: gr.Textbox(visible=synthid),
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
        return {self.scheme: scheme}

    def _of(self, scheme: str) -> tuple[Mapping[str, Setting], Mapping[str, Component]]:
        if scheme == "synthid":
            return marks.SYNTHID, self.synthid
        return marks.GREEN_LIST, self.green


def build_scheme_and_key(limits: Limits) -> SchemeAndKey:
    """The scheme and its key, with the defaults of a watermark."""
    scheme = gr.Dropdown(
        _SCHEMES,
        value="lefthash",
        label="scheme",
        interactive=True,
        filterable=False,
        elem_id="detect-scheme",
    )
    hashing_key = _control(marks.GREEN_LIST["hashing_key"], limits)
    keys = _control(marks.SYNTHID["keys"], limits, visible=False, max_lines=1)
    return SchemeAndKey(scheme, hashing_key, keys)


def build_detector_settings(limits: Limits, main: SchemeAndKey) -> DetectorSettings:
    """The other controls, with the defaults of a watermark."""
    with gr.Row(elem_classes="settings detection"):
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
        green = {name: _control(marks.GREEN_LIST[name], limits) for name in _MORE_GREEN}
    with gr.Row(elem_classes="settings detection", visible=False) as synthid_row:
        synthid = {name: _control(marks.SYNTHID[name], limits) for name in _MORE_SYNTHID}
    return DetectorSettings(
        scheme=main.scheme,
        threshold=threshold,
        once=once,
        green={"hashing_key": main.hashing_key, **green},
        synthid={"keys": main.keys, **synthid},
        green_row=green_row,
        synthid_row=synthid_row,
    )


def _control(setting: Setting, limits: Limits, **options: Any) -> Component:
    return control(setting, setting.default, limits, elem_id=f"detect-{setting.name}", **options)


def _value(setting: Setting, one: Component, value: Any) -> Any:
    value = shown(setting, value)
    return as_text(value) if isinstance(one, gr.Textbox) else value
