"""Cards as generation configs: what each changes of the model's own, as files, and back again.

Knows `GenerationConfig` and which of its fields a form has places for. Refuses to know components:
what goes wrong comes back in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from engine.errors import PlaygroundError
from engine.settings import SHARED
from playground import Playground, generation_configs
from playground.ui.compare import cards
from playground.ui.compare.card_state import Card
from playground.ui.shared.controls import carriable
from strategies import find

LARGEST = 102_400  # bytes of a file that is read
UNNAMED = "configuration"
_LONGEST = 40  # characters of a name: a file system counts up to four bytes for each

# What every card changes


def changes(card: Card, shared: Mapping[str, Any], lab: Playground) -> dict[str, Any]:
    """What a card's run would change of the model's own config, for people to read."""
    name = cards.readable(card.strategy)
    try:
        config, note = configuration(card, shared, lab)
    except PlaygroundError as error:
        return {"name": name, "error": str(error)}
    own = lab.model.module.generation_config
    usual = own._get_default_generation_params()
    rows = [
        _row(field, before, after, usual.get(field))
        for field, (before, after) in generation_configs.changes(own, config).items()
    ]
    return {"name": name, "rows": rows, "note": note}


def configuration(
    card: Card, shared: Mapping[str, Any], lab: Playground
) -> tuple[GenerationConfig, str]:
    """A card's config, and a note where its file would mean another strategy."""
    config = lab.configuration(cards.asked_by(card, lab), **shared)
    meant, _ = generation_configs.choice(config, lab.model.module.generation_config, 0)
    if meant == card.strategy:
        return config, ""
    return config, f"Read from a file, these settings mean {cards.readable(meant)}."


def _row(field: str, before: Any, after: Any, usual: Any) -> dict[str, Any]:
    was = _spelled(before)
    if before is None:
        was = "not set" if usual is None else f"not set ({_spelled(usual)})"
    same = before is None and after == usual  # only said, not changed
    return {"field": field, "own": was, "run": _spelled(after), "same": same}


def _spelled(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """A config inside a config, such as a watermark's, as the dictionary its file has."""
    return value.to_dict() if hasattr(value, "to_dict") else value


# Cards to files


def written(
    deck: Sequence[Card], shared: Mapping[str, Any], name: str, lab: Playground
) -> tuple[dict[str, str], list[str]]:
    """The cards' files by name, and words about those that have none or mean something else."""
    name = file_name(name)
    files: dict[str, str] = {}
    words = []
    for card in deck:
        try:
            config, note = configuration(card, shared, lab)
        except PlaygroundError as error:
            words.append(str(error))
            continue
        wished = name if len(deck) == 1 else f"{name}-{card.strategy}"
        free = next(file for file in _numbered(wished) if file not in files)
        files[free] = generation_configs.as_json(config)
        if note:
            words.append(f"{free}: {note}")
    return files, words


def file_name(name: str) -> str:
    """The name as a file may have it anywhere: letters, digits, dashes and underscores."""
    clean = re.sub(r"[^\w-]+", "-", name.strip().removesuffix(".json"))
    return clean[:_LONGEST].strip("-") or UNNAMED


def _numbered(name: str) -> Iterator[str]:
    yield f"{name}.json"
    number = 2
    while True:
        yield f"{name}-{number}.json"
        number += 1


# Files to cards


@dataclass(frozen=True)
class Loaded:
    """A file as a form takes it: a card, settings for every strategy, and words on the rest."""

    name: str
    card: tuple[str, dict[str, Any]]
    shared: Mapping[str, Any]
    words: tuple[str, ...]


def load(paths: Sequence[Path], lab: Playground) -> list[Loaded]:
    """Every file as a form takes it, or a `PlaygroundError` about one that is no config."""
    most = lab.limits.strategies
    if not paths:
        raise PlaygroundError("there is no file to load")
    if len(paths) > most:
        raise PlaygroundError(f"{len(paths)} files; at most {most} strategies run side by side")
    for path in paths:
        if (size := path.stat().st_size) > LARGEST:
            raise PlaygroundError(f"{path.name} has {size:,} bytes; at most {LARGEST:,} are read")
    return [_loaded(path.name, generation_configs.load(path), lab) for path in paths]


def _loaded(name: str, config: GenerationConfig, lab: Playground) -> Loaded:
    own = lab.model.module.generation_config
    ours = generation_configs.values(own)
    changed = {
        field
        for field, value in generation_configs.values(config).items()
        if ours.get(field) != value
    }
    config.max_length = None  # it counts the prompt, and a card is for any prompt
    try:
        strategy, settings = generation_configs.choice(config, own, 0)
        lab.configuration((strategy, settings))  # which refuses what no run could have
    except PlaygroundError as error:
        raise PlaygroundError(f"{name}: {error}") from error
    settings = {field: _plain(value) for field, value in settings.items()}
    found, everywhere = find(strategy), carriable(SHARED)
    shared = {field: settings[field] for field in everywhere if field in changed & settings.keys()}
    lost = sorted(changed - {*everywhere, *cards.carried(found), *found.fixed})
    words = f"{name}: left out, as the page has no place for it with {cards.readable(strategy)}: "
    return Loaded(
        name,
        (strategy, cards.showing(strategy, settings, lab)),
        shared,
        (words + ", ".join(lost),) if lost else (),
    )


def agreed(files: Sequence[Loaded]) -> tuple[dict[str, Any], list[str]]:
    """The settings for every strategy that all files agree on, and words about the others.

    Agreed to be None is what all of them leave to the model.
    """
    settings: dict[str, Any] = {}
    words = []
    for name, setting in carriable(SHARED).items():
        if name not in generation_configs.FIELDS:
            continue
        values = [file.shared.get(name) for file in files]
        if any(value != values[0] for value in values):
            each = "; ".join(
                f"{file.name}: {'not set' if value is None else _spelled(value)}"
                for file, value in zip(files, values, strict=True)
            )
            words.append(f"{name} differs between the files and is left as it is ({each})")
        elif values[0] is not None or setting.default is None:  # a form always has a length
            settings[name] = values[0]
    return settings, words
