"""One setting in, one Gradio control out, and the control's value back as the setting's.

Knows the kinds a `Setting` may have, how each is shown and how it is read. Refuses to know any
setting by name, and leaves every check but the form of the text to the lab, whose message names
what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import gradio as gr
from gradio.components import Component

from engine.errors import PlaygroundError
from engine.settings import Limits, Setting
from playground import generation_configs

AUTOMATIC = "model's own"  # said where nothing is given
NOTHING = "none"  # and where a generation config has no such field

# What can stand in a field.
_HELD: dict[Any, tuple[type, ...]] = {
    gr.Textbox: (str, int, float),
    gr.Number: (int, float),
    gr.Checkbox: (bool,),
}
# A slider over a wider range cannot be aimed.
_AIMABLE = {int: 1_000, float: 2}


def control(setting: Setting, value: Any, default: Any, limits: Limits, **place: Any) -> Component:
    """The control for one setting, showing ``value`` (as `shown` gave it) where there is one."""
    value = shown(setting, default) if value is None else value
    common = {
        "label": setting.name,
        "info": f"{setting.help} {_range(setting, limits)}".strip(),
        "value": value,
        "interactive": True,
        "min_width": 120,
        **place,
    }
    if _labels(setting):
        choices = list(_labels(setting)) if default is not None else ["", *_labels(setting)]
        named = [(choice or AUTOMATIC, choice) for choice in choices]
        return gr.Dropdown(named, **common)
    if setting.kind is bool:
        return gr.Checkbox(**common)
    if setting.kind in (int, float):
        return _number(setting, default, limits, common)
    unset = AUTOMATIC if setting.name in generation_configs.FIELDS else NOTHING
    return gr.Textbox(placeholder=unset, max_lines=3, **common)


def carriable(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings a form can carry."""
    return {name: setting for name, setting in settings.items() if not setting.python_only}


def _number(
    setting: Setting, default: Any, limits: Limits, common: dict[str, Any]
) -> gr.Slider | gr.Textbox:
    low, high = setting.low, setting.highest(limits)
    if low is None or high is None or default is None or high - low > _AIMABLE[setting.kind]:
        # Not `gr.Number`: it turns into 0 what was left empty.
        common["value"] = None if common["value"] is None else spelled(common["value"])
        return gr.Textbox(placeholder=AUTOMATIC, max_lines=1, **common)
    step = 1 if setting.kind is int else 0.01 if high - low >= 1 else 0.001
    # Text where the card had another strategy, and a default may be more than the server allows.
    number = read(setting, common["value"])
    number = number if isinstance(number, int | float) else default
    common["value"] = max(low, min(number, high))
    return gr.Slider(low, high, step=step, **common)


def _range(setting: Setting, limits: Limits) -> str:
    high = setting.highest(limits)
    if setting.choices is not None or setting.kind not in (int, float) or setting.low is None:
        return ""
    low = f"{'above' if setting.open_low else 'from'} {setting.low:g}"
    return f"({low} to {high:g})" if high is not None and high < 2**31 else f"({low})"


def _labels(setting: Setting) -> dict[str, Any]:
    """The words a choice is picked by: true and 1 must stay apart, and 'not given' needs a word."""
    if setting.choices is not None:
        return {spelled(choice): choice for choice in setting.choices}
    if setting.kind is bool and setting.default is None:
        return {"on": True, "off": False}
    return {}


def spelled(value: Any) -> str:
    """A value as people type it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown(setting: Setting, value: Any) -> Any:
    """What the control shows for a value of the setting."""
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
        return json.dumps(value, ensure_ascii=False)  # bare, its commas would divide it
    return spelled(value)


def fitting(field: Any, value: Any, usual: Any) -> Any:
    """A value that the field can show: a link may come from anybody, or from a server with other
    limits."""
    if isinstance(field, gr.Slider):
        number = type(value) in (int, float)
        return max(field.minimum, min(value, field.maximum)) if number else usual
    if isinstance(field, gr.Dropdown | gr.Radio):
        return value if value in [choice for _, choice in field.choices] else usual
    return value if type(value) in _HELD[type(field)] else usual


def read(setting: Setting, shown: Any) -> Any:
    """The setting's value from what its control shows; None where nothing is given."""
    if shown is None or shown == "":
        return None
    labels = _labels(setting)
    if labels:
        return labels[shown]
    if setting.kind in (int, float):
        number = _parsed_number(shown) if isinstance(shown, str) else shown
        whole = setting.kind is int and isinstance(number, float) and number.is_integer()
        return int(number) if whole else number
    if setting.kind is object:
        return _parsed(setting.name, cast(str, shown))
    return shown


def _parsed_number(text: str) -> int | float | str:
    """The number a text spells, or the text itself: the lab says what is wrong with it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parsed(name: str, text: str) -> Any:
    """JSON where the text is JSON, else a word, or words between commas."""
    text = text.strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text[0] in '[{"':
            raise PlaygroundError(
                f"{name} looks like JSON but cannot be read: {error}; "
                "give JSON, or words with commas between them"
            ) from error
    words = [word.strip() for word in text.split(",") if word.strip()]
    return words[0] if len(words) == 1 else words


def shows(setting: Setting, shown: Any, value: Any) -> bool:
    """Whether a control shows this value; text that cannot be read shows none."""
    try:
        return bool(read(setting, shown) == value)
    except PlaygroundError:
        return False


def bind(
    settings: Mapping[str, Setting], values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that were given, by name: what equals its default is left to the default."""
    given = {name: read(settings[name], value) for name, value in values.items()}
    return {
        name: value
        for name, value in given.items()
        if value is not None and value != defaults.get(name)
    }
