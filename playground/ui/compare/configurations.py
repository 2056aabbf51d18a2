"""The section "Configurations": the model's own generation config, what the cards would change of
it, and configs saved to files and loaded from them.

Knows the section's parts and events. Refuses to know how a card becomes a config: `config_cards`
does. Words of people and files reach the page as ``textContent``, or escaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component
from gradio.processing_utils import save_bytes_to_cache

from engine.errors import PlaygroundError
from engine.settings import SHARED
from playground import Playground, generation_configs
from playground.ui import assets
from playground.ui.compare import config_cards
from playground.ui.compare.card_state import Deck
from playground.ui.shared.controls import shown
from playground.ui.shared.messages import warn

Values = Mapping[Block, Any]
# The deck as its controls show it, and the settings for every strategy.
Taken = tuple[Deck, Mapping[str, Any]]

_WHAT_IT_DOES = (
    "A file holds what `GenerationConfig.from_pretrained` reads, one per card. Loading files "
    "replaces the cards and the settings for every strategy; the prompt and the seed stay."
)


@dataclass(frozen=True)
class Section:
    """The parts of the section."""

    fold: gr.Accordion
    view: gr.HTML
    look: gr.Button
    name: gr.Textbox
    save: gr.Button
    saved: gr.File
    load: gr.UploadButton


def section() -> Section:
    """The section, folded."""
    with gr.Accordion("Configurations", open=False, elem_id="configurations") as fold:
        view = gr.HTML(
            value="",
            html_template='<div class="own"></div><div class="runs"></div>',
            css_template=assets.text("compare/web/configurations.css"),
            js_on_load=assets.mount("compare/web/configurations.js"),
            apply_default_css=False,
            elem_id="changes",
        )
        with gr.Row(elem_id="files"):
            look = gr.Button("Show what the cards change", size="sm", elem_id="look")
            name = gr.Textbox(
                config_cards.UNNAMED,
                label="Save as",
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
        saved = gr.File(
            file_count="multiple",
            interactive=False,
            visible=False,
            label="Saved: press a size to download the file",
            elem_id="saved",
        )
        gr.Markdown(_WHAT_IT_DOES, elem_classes="summary")
    return Section(fold, view, look, name, save, saved, load)


def connect_cards(
    parts: Section,
    inputs: set[Block],
    take: Callable[[Values], Taken],
    lab: Playground,
    ended: Callable[..., Any],
    **how: Any,
) -> None:
    """Connect what reads the cards' controls; ``ended`` tells of the end of a run."""

    def look(values: Values) -> str:
        return overview(lab, lambda: take(values))

    def save(values: Values) -> dict[str, Any]:
        try:
            deck, shared = take(values)
        except PlaygroundError as error:
            _warn([str(error)])
            return gr.update()
        files, words = config_cards.written(deck.cards, shared, values[parts.name], lab)
        _warn(words)
        # In Gradio's own folder a file is handed out, and cleared away, from where it lies.
        paths = [
            save_bytes_to_cache(text.encode(), name, parts.saved.GRADIO_CACHE)
            for name, text in files.items()
        ]
        return gr.update(value=paths, visible=bool(paths))

    for event in (parts.fold.expand, parts.look.click, ended):
        event(look, inputs, parts.view, **how)
    gr.on([parts.save.click, parts.name.submit], save, inputs | {parts.name}, parts.saved, **how)


def connect_deck(
    parts: Section,
    inputs: set[Block],
    take: Callable[[Values], Taken],
    find: Callable[[Values], Playground | None],
    changed: Sequence[Callable[..., Any]],
    **how: Any,
) -> None:
    """Connect what needs no control: the deck as it is when it has ``changed``."""

    def look(values: Values) -> Any:
        lab = find(values)
        return gr.skip() if lab is None else overview(lab, lambda: take(values))

    gr.on(changed, look, inputs, parts.view, **how)


def connect_load(
    parts: Section,
    deck: gr.State,
    fields: Mapping[str, Component],
    loaded: gr.State,
    find: Callable[[str], Playground | None],
    **how: Any,
) -> None:
    """Connect loading, which needs no card; ``fields`` hold the settings for every strategy, and
    ``loaded`` the name of the model that is there."""

    def load(paths: list[str] | None, before: Deck, name: str) -> dict[Component, Any]:
        try:
            lab = find(name)
            if lab is None:
                raise PlaygroundError("the model is still on its way; load files when it is there")
            files = config_cards.load([Path(path) for path in paths or []], lab)
        except PlaygroundError as error:
            _warn([str(error)])
            return {deck: gr.skip()}
        shared, words = config_cards.agreed(files)
        gr.Info(f"Loaded: {html.escape(', '.join(file.name for file in files))}")
        _warn([*(word for file in files for word in file.words), *words])
        filled = {fields[name]: shown(SHARED[name], value) for name, value in shared.items()}
        return {deck: before.deal(tuple(file.card for file in files)), **filled}

    parts.load.upload(load, [parts.load, deck, loaded], [deck, *fields.values()], **how)


def _warn(words: Sequence[str]) -> None:
    for sentence in words:
        warn(sentence)


def overview(lab: Playground, take: Callable[[], Taken]) -> str:
    """What the view shows, as JSON: the model's own config, and what each card changes of it."""
    own = generation_configs.as_json(lab.model.module.generation_config).strip()
    told: dict[str, Any] = {"model": lab.model.name, "own": own, "cards": []}
    try:
        deck, shared = take()
        told["cards"] = [config_cards.changes(card, shared, lab) for card in deck.cards]
    except PlaygroundError as error:
        told["error"] = str(error)
    # Gradio warns about every value with a script tag in it; in JSON this is the same text.
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
