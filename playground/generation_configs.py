"""Generation configs: which strategy one asks for, what a run makes of the model's own, and files.

Knows `GenerationConfig` and transformers' rule for picking a strategy. Files are the ones
transformers reads (`GenerationConfig.from_pretrained(folder, name)`), several beside each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from engine.errors import PlaygroundError, did_you_mean
from engine.prepare import quiet
from engine.strategy import Strategy
from engine.watermark.config import mark_to_write
from strategies import find

_MODES = {
    "greedy_search": "greedy",
    "sample": "sample",
    "beam_search": "beam_search",
    "beam_sample": "beam_sample",
    "group_beam_search": "diverse_beam_search",
    "constrained_beam_search": "constrained_beam_search",
    "contrastive_search": "contrastive_search",
    "dola_generation": "dola",
}
# Of the file, not of a run.
_ABOUT = ("_from_model_config", "_original_object_hash", "transformers_version")


def choice(
    config: GenerationConfig, own: GenerationConfig, started: int
) -> tuple[str, dict[str, Any]]:
    """The strategy transformers would pick, with those of the config's settings it looks at.

    ``own`` is the model's config, which fills in what is not given; ``started`` says how many
    tokens stand before the first new one.
    """
    strategy = find(_picked(config, own))
    given = values(config)
    if config.max_new_tokens is None and config.max_length is not None:
        given["max_new_tokens"] = config.max_length - started
    # Else the strategy's own default would take the place of the model's.
    settings = strategy.own_settings
    inherited = {name: value for name, value in values(own).items() if name in settings}
    looked_at = {**strategy.settings, **strategy.fixed}
    return strategy.id, {
        name: value for name, value in {**inherited, **given}.items() if name in looked_at
    }


def _picked(config: GenerationConfig, own: GenerationConfig) -> str:
    whole = _made({**own._get_default_generation_params(), **values(own), **values(config)})
    if whole.prompt_lookup_num_tokens is not None:
        return "prompt_lookup"
    if whole.assistant_early_exit is not None:
        return "early_exit"
    try:
        return _MODES[whole.get_generation_mode().value]
    except TypeError as error:  # it compares numbers, and checks none of them
        raise PlaygroundError(f"a number is expected where the config has none: {error}") from error


def _made(fields: Mapping[str, Any]) -> GenerationConfig:
    untyped: Any = GenerationConfig  # transformers has no types here
    mark = fields.get("watermarking_config")
    if isinstance(mark, Mapping):  # which transformers takes for a green list, whatever is in it
        fields = {**fields, "watermarking_config": mark_to_write(mark)}
    with quiet():
        config: GenerationConfig = untyped(**fields)
    return config


FIELDS = frozenset(vars(_made({})))


def values(config: GenerationConfig) -> dict[str, Any]:
    """The fields of a config that are set."""
    return {
        name: value
        for name, value in vars(config).items()
        if value is not None and name not in _ABOUT
    }


def configured(
    own: GenerationConfig, strategy: Strategy, settings: Mapping[str, Any]
) -> GenerationConfig:
    """The config a run has: the model's own, changed by the strategy and its settings."""
    known, theirs = vars(own), strategy.own_settings
    fields = {name: value for name, value in settings.items() if name in known}
    config = _made({**values(own), **fields, **strategy.fixed})
    lost = [name for name in settings if name in theirs and name not in known]
    if _picked(config, own) == strategy.id:  # then what is not in it has its default again
        lost = [name for name in lost if settings[name] != theirs[name].default]
    if lost:
        raise PlaygroundError(
            f"{strategy.id} cannot be written as a GenerationConfig: it has no field for"
            f" {', '.join(lost)}"
        )
    return config


def changes(own: GenerationConfig, config: GenerationConfig) -> dict[str, tuple[Any, Any]]:
    """What a config changes: each field with what it was and what it is."""
    before, after = values(own), values(config)
    return {
        name: (before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    }


def as_json(config: GenerationConfig) -> str:
    """The config as its file has it: what is set, and nothing else."""
    return str(config.to_json_string(use_diff=True))


def save(config: GenerationConfig, path: Path) -> None:
    """Write a config's file. (`save_pretrained` refuses some that transformers itself would run,
    contrastive search among them.)"""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_json(config), encoding="utf-8")
    except OSError as error:
        raise PlaygroundError(f"cannot write {path}: {error.strerror}") from error


def load(path: Path) -> GenerationConfig:
    """Read a config's file."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{path.name} is no generation config: it is no text") from error
    except OSError as error:
        beside = [other.name for other in path.parent.glob("*.json")] if path.name else []
        near = did_you_mean(path.name, beside)
        raise PlaygroundError(f"cannot read {path}: {error.strerror}{near}") from error
    return parse(text, path.name)


def parse(text: str, name: str) -> GenerationConfig:
    """The config a file holds; fields nobody knows are refused, as they would be lost."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        unknown = [field for field in fields if field not in FIELDS]
        if unknown:
            near = did_you_mean(unknown[0], FIELDS)
            raise PlaygroundError(f"{name} has a field {unknown[0]!r}, which nothing reads{near}")
        return _made(fields)
    # What transformers meets in a value of another kind than it expects may be any of these.
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise PlaygroundError(f"{name} is no generation config: {error}") from error


def files(folder: Path) -> list[Path]:
    """The config files of a folder, by name."""
    return sorted(folder.glob("*.json"))
