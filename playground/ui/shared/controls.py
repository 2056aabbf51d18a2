"""Controls for settings: a Gradio component for each `Setting`, and its value back.

Values are only parsed here. The lab checks them, and its messages name what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import gradio as gr
from gradio.components import Component

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.settings import Limits, Setting
from playground import generation_configs
from playground.ui.shared.messages import warn

TEXT, MESSAGE = PROMPT_KINDS = ("text to continue", "message to answer")

MODEL_DEFAULT = "model default"  # shown for an empty field of a generation config
NOT_SET = "not set"  # shown for any other empty field

# The types a field can hold.
_TYPES: dict[Any, tuple[type, ...]] = {
    gr.Textbox: (str, int, float),
    gr.Number: (int, float),
    gr.Checkbox: (bool,),
}
# Over a wider range, a slider is too coarse.
_SLIDER_RANGE = {int: 1_000, float: 2}


def prompt_kind(elem_id: str) -> gr.Radio:
    """The choice between a text to continue and a chat message."""
    return gr.Radio(
        PROMPT_KINDS, value=TEXT, label="The prompt is a", interactive=True, elem_id=elem_id
    )


def as_prompt(text: str, kind: str) -> str | Chat:
    """A prompt as a lab takes it."""
    return [{"role": "user", "content": text}] if kind == MESSAGE else text


@dataclass(frozen=True)
class Field:
    """How a form shows one setting."""

    name: str
    kind: Literal["choice", "check", "slider", "number", "text"]
    value: Any  # see `shown`
    help: str
    choices: tuple[tuple[str, str], ...] = ()  # what is shown, and the value
    low: float | None = None
    high: float | None = None
    step: float | None = None
    placeholder: str = ""


def field(setting: Setting, default: Any, limits: Limits) -> Field:
    """The field of one setting, which shows the default."""
    help = f"{setting.help} {_range(setting, limits)}".strip()
    common: dict[str, Any] = {
        "name": setting.name,
        "value": shown(setting, default),
        "help": help,
    }
    if _labels(setting):
        choices = list(_labels(setting)) if default is not None else ["", *_labels(setting)]
        listed = tuple((choice or MODEL_DEFAULT, choice) for choice in choices)
        return Field(kind="choice", choices=listed, **common)
    if setting.kind is bool:
        return Field(kind="check", **common)
    if setting.kind in (int, float):
        return _number(setting, default, limits, common)
    empty = MODEL_DEFAULT if setting.name in generation_configs.FIELDS else NOT_SET
    return Field(kind="text", placeholder=empty, **common)


def control(setting: Setting, default: Any, limits: Limits, **options: Any) -> Component:
    """The Gradio component of one setting; it shows the default."""
    shown = field(setting, default, limits)
    common = {
        "label": shown.name,
        "info": shown.help,
        "value": shown.value,
        "interactive": True,
        "min_width": 120,
        **options,
    }
    if shown.kind == "choice":
        return gr.Dropdown(list(shown.choices), **common)
    if shown.kind == "check":
        return gr.Checkbox(**common)
    if shown.low is not None and shown.high is not None:
        return gr.Slider(shown.low, shown.high, step=shown.step, **common)
    # Not `gr.Number`: an empty one has the value 0.
    lines = 1 if shown.kind == "number" else 3
    return gr.Textbox(**{"placeholder": shown.placeholder, "max_lines": lines, **common})


def with_controls(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings that a form has controls for: not those that take Python objects."""
    return {name: setting for name, setting in settings.items() if not setting.python_only}


def _number(setting: Setting, default: Any, limits: Limits, common: dict[str, Any]) -> Field:
    low, high = setting.low, setting.highest(limits)
    if low is None or high is None or default is None or high - low > _SLIDER_RANGE[setting.kind]:
        common["value"] = None if common["value"] is None else as_text(common["value"])
        return Field(kind="number", placeholder=MODEL_DEFAULT, **common)
    step = 1 if setting.kind is int else 0.01 if high - low >= 1 else 0.001
    common["value"] = max(low, min(default, high))  # a default may exceed the limit
    return Field(kind="slider", low=low, high=high, step=step, **common)


def _range(setting: Setting, limits: Limits) -> str:
    high = setting.highest(limits)
    if setting.choices is not None or setting.kind not in (int, float) or setting.low is None:
        return ""
    low = f"{'above' if setting.open_low else 'from'} {setting.low:g}"
    return f"({low} to {high:g})" if high is not None and high < 2**31 else f"({low})"


def _labels(setting: Setting) -> dict[str, Any]:
    """The choices by label: Gradio would take true and 1 for the same value."""
    if setting.choices is not None:
        return {as_text(choice): choice for choice in setting.choices}
    if setting.kind is bool and setting.default is None:
        return {"on": True, "off": False}
    return {}


def as_text(value: Any) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown(setting: Setting, value: Any) -> Any:
    """What the setting's control shows for a value."""
    labels = _labels(setting)
    if labels:
        same = (
            label
            for label, choice in labels.items()
            if type(choice) is type(value) and choice == value
        )
        return next(same, "")
    if setting.kind in (bool, int, float) or value is None:
        return value
    if setting.kind is object and isinstance(value, str) and not shows(setting, value, value):
        return json.dumps(value, ensure_ascii=False)  # unquoted, it would be split at its commas
    return as_text(value)


def fitting(field: Any, value: Any, default: Any) -> Any:
    """A value from a link if the field can show it, else the nearest one or the default; a warning
    says so."""
    if value is None:
        return default
    if isinstance(field, gr.Slider):
        fits = type(value) in (int, float)
        used = max(field.minimum, min(value, field.maximum)) if fits else default
        allowed = f"a number from {field.minimum:g} to {field.maximum:g}"
    elif isinstance(field, gr.Dropdown | gr.Radio):
        choices = [choice for _, choice in field.choices]
        used = value if value in choices else default
        allowed = "one of " + ", ".join(map(as_text, choices))
    else:
        used = value if type(value) in _TYPES[type(field)] else default
        allowed = "a value of another type"
    if used != value:
        warn(
            f"The link sets {field.label} to {as_text(value)}; it must be {allowed}. "
            f"{as_text(used)} is used instead."
        )
    return used


def read(setting: Setting, shown: Any) -> Any:
    """The setting's value from what its control shows; None if it is empty."""
    if shown is None or shown == "":
        return None
    labels = _labels(setting)
    if labels:
        return labels[shown]
    if setting.kind in (int, float):
        number = _parse_number(shown) if isinstance(shown, str) else shown
        whole = setting.kind is int and isinstance(number, float) and number.is_integer()
        return int(number) if whole else number
    if setting.kind is object:
        return _parse(setting.name, cast(str, shown))
    return shown


def _parse_number(text: str) -> int | float | str:
    """A number, or the text itself, which the lab then rejects."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parse(name: str, text: str) -> Any:
    """JSON, or else one word or a list of words separated by commas."""
    text = text.strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text[0] in '[{"':
            raise PlaygroundError(
                f"{name} looks like JSON but cannot be parsed: {error}; "
                "enter JSON, or words separated by commas"
            ) from error
    words = [word.strip() for word in text.split(",") if word.strip()]
    return words[0] if len(words) == 1 else words


def shows(setting: Setting, shown: Any, value: Any) -> bool:
    """Whether a control shows this value; text that cannot be parsed shows none."""
    try:
        return bool(read(setting, shown) == value)
    except PlaygroundError:
        return False


def given(
    settings: Mapping[str, Setting], values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that controls change: those that are not empty and not the default."""
    read_values = {name: read(settings[name], value) for name, value in values.items()}
    return {
        name: value
        for name, value in read_values.items()
        if value is not None and value != defaults.get(name)
    }
