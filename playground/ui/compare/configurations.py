"""Generation configs: what each card changes of the model's config, saved to files and loaded.

Text of visitors and files reaches the page as text content, or escaped.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from transformers import GenerationConfig

from engine.errors import PlaygroundError
from engine.settings import SHARED
from playground import Playground, generation_configs
from playground.ui import assets
from playground.ui.compare.cards import (
    Card,
    card_settings,
    card_values,
    choice,
    from_json,
    to_json,
)
from playground.ui.compare.form import Form
from playground.ui.shared import browser
from playground.ui.shared.comparison import strategy_title
from playground.ui.shared.controls import shown, with_controls
from playground.ui.shared.events import QUICK, Updates, Values
from playground.ui.shared.html import json_value
from playground.ui.shared.jobs import loaded_lab
from playground.ui.shared.messages import shows_errors, warn
from playground.ui.shared.pages import App
from strategies import find

MAX_BYTES = 102_400  # of a file that is loaded
DEFAULT_NAME = "configuration"
_NAME_CHARACTERS = 40  # a file system counts up to four bytes for each

# The cards, and the shared settings that were set.
FormValues = tuple[Sequence[Card], Mapping[str, Any]]

_DESCRIPTION = (
    "Each card is saved as a file that `GenerationConfig.from_pretrained` reads. Loading files "
    "replaces the cards and the shared settings; prompt and seed stay."
)


# What each card changes


def changes(card: Card, shared: Mapping[str, Any], lab: Playground) -> dict[str, Any]:
    """What a card changes of the model's config, as the page shows it."""
    name = strategy_title(card.strategy)
    try:
        config, note = to_config(card, shared, lab)
    except PlaygroundError as error:
        return {"name": name, "error": str(error)}
    own = lab.model.module.generation_config
    # private: the defaults of fields that a config leaves unset have no public accessor.
    defaults = own._get_default_generation_params()
    rows = [
        _row(field, before, after, defaults.get(field))
        for field, (before, after) in generation_configs.changes(own, config).items()
    ]
    return {"name": name, "rows": rows, "note": note}


def to_config(
    card: Card, shared: Mapping[str, Any], lab: Playground
) -> tuple[GenerationConfig, str]:
    """A card's config, and a note if transformers reads it as another strategy."""
    config = lab.configuration(choice(card, lab), **shared)
    strategy, _ = generation_configs.choice(config, lab.model.module.generation_config, 0)
    if strategy == card.strategy:
        return config, ""
    return config, f"When loaded, this file selects {strategy_title(strategy)}."


def _row(field: str, before: Any, after: Any, default: Any) -> dict[str, Any]:
    own = _as_json(before)
    if before is None:
        own = "not set" if default is None else f"not set ({_as_json(default)})"
    same = before is None and after == default  # set to the value it has anyway
    return {"field": field, "own": own, "run": _as_json(after), "same": same}


def _as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """A config inside a config, such as a watermark's, as a dictionary."""
    return value.to_dict() if hasattr(value, "to_dict") else value


# Cards to files


def to_files(
    cards: Sequence[Card], shared: Mapping[str, Any], name: str, lab: Playground
) -> tuple[dict[str, str], list[str]]:
    """The cards' files by name, and warnings about cards that a file cannot represent."""
    name = file_name(name)
    files: dict[str, str] = {}
    warnings = []
    for card in cards:
        try:
            config, note = to_config(card, shared, lab)
        except PlaygroundError as error:
            warnings.append(str(error))
            continue
        wanted = name if len(cards) == 1 else f"{name}-{card.strategy}"
        free = next(file for file in _numbered(wanted) if file not in files)
        files[free] = generation_configs.as_json(config)
        if note:
            warnings.append(f"{free}: {note}")
    return files, warnings


def file_name(name: str) -> str:
    """A valid file name: letters, digits, dashes and underscores."""
    clean = re.sub(r"[^\w-]+", "-", name.strip().removesuffix(".json"))
    return clean[:_NAME_CHARACTERS].strip("-") or DEFAULT_NAME


def _numbered(name: str) -> Iterator[str]:
    yield f"{name}.json"
    number = 2
    while True:
        yield f"{name}-{number}.json"
        number += 1


# Files to cards


@dataclass(frozen=True)
class LoadedFile:
    """A file as a card and shared settings, and warnings about fields that were left out."""

    name: str
    card: Card
    shared: Mapping[str, Any]
    warnings: tuple[str, ...]


def load(paths: Sequence[Path], lab: Playground) -> list[LoadedFile]:
    """Load files, or raise a `PlaygroundError` that names the invalid one."""
    limit = lab.limits.strategies
    if not paths:
        raise PlaygroundError("choose at least one file")
    if len(paths) > limit:
        raise PlaygroundError(f"{len(paths)} files; a comparison has at most {limit} strategies")
    for path in paths:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise PlaygroundError(
                f"{path.name} has {size:,} bytes; at most {MAX_BYTES:,} are allowed"
            )
    return [_load(path.name, generation_configs.load(path), lab) for path in paths]


def _load(name: str, config: GenerationConfig, lab: Playground) -> LoadedFile:
    own = lab.model.module.generation_config
    ours = generation_configs.values(own)
    changed = {
        field
        for field, value in generation_configs.values(config).items()
        if ours.get(field) != value
    }
    config.max_length = None  # it includes the prompt's length, and a card is for any prompt
    try:
        strategy, settings = generation_configs.choice(config, own, 0)
        lab.configuration((strategy, settings))  # raises if no run can have these settings
    except PlaygroundError as error:
        raise PlaygroundError(f"{name}: {error}") from error
    settings = {field: _plain(value) for field, value in settings.items()}
    found, everywhere = find(strategy), with_controls(SHARED)
    shared = {field: settings[field] for field in everywhere if field in changed & settings.keys()}
    ignored = sorted(changed - {*everywhere, *card_settings(found), *found.fixed})
    text = f"{name}: ignored, because {strategy_title(strategy)} has no control for it: "
    return LoadedFile(
        name,
        Card(strategy, card_values(strategy, settings, lab)),
        shared,
        (text + ", ".join(ignored),) if ignored else (),
    )


def common_settings(files: Sequence[LoadedFile]) -> tuple[dict[str, Any], list[str]]:
    """The shared settings that all files agree on, and warnings about the others.

    None is a setting that no file sets.
    """
    settings: dict[str, Any] = {}
    warnings = []
    for name, setting in with_controls(SHARED).items():
        if name not in generation_configs.FIELDS:
            continue
        values = [file.shared.get(name) for file in files]
        if any(value != values[0] for value in values):
            each = "; ".join(
                f"{file.name}: {'not set' if value is None else _as_json(value)}"
                for file, value in zip(files, values, strict=True)
            )
            warnings.append(f"{name} differs between the files and was not changed ({each})")
        elif values[0] is not None or setting.default is None:  # a form always has a length
            settings[name] = values[0]
    return settings, warnings


# The section of the page


@dataclass(frozen=True)
class ConfigurationSection:
    """The components of the section."""

    accordion: gr.Accordion
    view: gr.HTML
    look: gr.Button
    name: gr.Textbox
    save: gr.Button
    load: gr.UploadButton

    def connect(self, app: App, cards: gr.HTML, form: Form, ended: Callable[..., Any]) -> None:
        """Connect the section; ``ended`` is the event of a run's end."""
        loaded = app.model.loaded
        inputs: set[Block] = {cards, loaded, *form.shared.values()}

        def read(values: Values) -> FormValues:
            return from_json(values[cards], app.limits), form.shared_of(values)

        def look(values: Values) -> Any:
            if not values[loaded]:
                return gr.skip()
            return overview(app.labs.lab(values[loaded]), lambda: read(values))

        @shows_errors
        def save(values: Values) -> str:
            listed, shared = read(values)
            lab = loaded_lab(app.labs, values[loaded])
            files, warnings = to_files(listed, shared, values[self.name], lab)
            _warn_all(warnings)
            return browser.download(files)

        @shows_errors
        def load_files(paths: list[str] | None, name: str) -> Updates:
            files = load([Path(path) for path in paths or []], loaded_lab(app.labs, name))
            shared, warnings = common_settings(files)
            gr.Info(f"Loaded {html.escape(', '.join(file.name for file in files))}")
            _warn_all([*(text for file in files for text in file.warnings), *warnings])
            filled: Updates = {
                form.shared[name]: shown(SHARED[name], value) for name, value in shared.items()
            }
            return {cards: to_json(file.card for file in files), **filled}

        for event in (self.accordion.expand, self.look.click, ended, loaded.change):
            event(look, inputs, self.view, **QUICK)
        events = [self.save.click, self.name.submit]
        gr.on(events, save, inputs | {self.name}, app.browser, **QUICK)
        outputs = [cards, *form.shared.values()]
        loading = self.load.upload(load_files, [self.load, loaded], outputs, **QUICK)
        loading.then(look, inputs, self.view, **QUICK)


def build_configurations() -> ConfigurationSection:
    """The section, folded."""
    with gr.Accordion("Generation configs", open=False, elem_id="configurations") as accordion:
        view = gr.HTML(
            value="",
            html_template='<div class="own"></div><div class="runs"></div>',
            css_template=assets.text("compare/web/configurations.css"),
            js_on_load=assets.mount("compare/web/configurations.js"),
            apply_default_css=False,
            elem_id="changes",
        )
        with gr.Row(elem_id="files"):
            look = gr.Button("Show changes", size="sm", elem_id="show-changes")
            name = gr.Textbox(
                DEFAULT_NAME,
                label="File name",
                max_lines=1,
                max_length=200,
                interactive=True,
                elem_id="save-as",
            )
            save = gr.Button("Save", size="sm", elem_id="save")
            load = gr.UploadButton(
                "Load files",
                file_count="multiple",
                file_types=[".json"],
                size="sm",
                elem_id="load",
            )
        gr.Markdown(_DESCRIPTION, elem_classes="summary")
    return ConfigurationSection(accordion, view, look, name, save, load)


def _warn_all(warnings: Sequence[str]) -> None:
    for text in warnings:
        warn(text)


def overview(lab: Playground, read: Callable[[], FormValues]) -> str:
    """The view's value: the model's config, and what each card changes of it."""
    own = generation_configs.as_json(lab.model.module.generation_config).strip()
    data: dict[str, Any] = {"model": lab.model.name, "own": own, "cards": []}
    try:
        cards, shared = read()
        data["cards"] = [changes(card, shared, lab) for card in cards]
    except PlaygroundError as error:
        data["error"] = str(error)
    return json_value(data)
