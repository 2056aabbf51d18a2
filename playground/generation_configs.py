"""Generation configs: the strategy that transformers picks, the config of a run, and files.

Files have the format of `GenerationConfig.from_pretrained(folder, name)`; a folder may hold
several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from engine.errors import PlaygroundError, did_you_mean
from engine.prepare import unread
from engine.strategy import Strategy
from engine.watermark.config import parse_watermark
from strategies import find

# Strategies by the generation mode that transformers picks.
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
# Fields about the file, not about a run.
_METADATA = ("_from_model_config", "_original_object_hash", "transformers_version")


def choice(
    config: GenerationConfig, own: GenerationConfig, started: int
) -> tuple[str, dict[str, Any]]:
    """The strategy that transformers would pick, with those of the config's settings that it uses.

    ``own`` is the model's config, for settings that are not given; ``started`` is the number of
    tokens before the first new one.
    """
    strategy = find(_picked(config, own))
    given = values(config)
    if config.max_new_tokens is None and config.max_length is not None:
        given["max_new_tokens"] = config.max_length - started
    # Otherwise the strategy's default would replace the model's.
    settings = strategy.own_settings
    inherited = {name: value for name, value in values(own).items() if name in settings}
    used = {**strategy.settings, **strategy.fixed}
    return strategy.id, {
        name: value for name, value in {**inherited, **given}.items() if name in used
    }


def _picked(config: GenerationConfig, own: GenerationConfig) -> str:
    whole = _config({**own._get_default_generation_params(), **values(own), **values(config)})
    if whole.prompt_lookup_num_tokens is not None:
        return "prompt_lookup"
    if whole.assistant_early_exit is not None:
        return "early_exit"
    try:
        return _MODES[whole.get_generation_mode().value]
    except TypeError as error:  # transformers compares numbers without checking them
        raise PlaygroundError(f"the config has a value that should be a number: {error}") from error


def _config(fields: Mapping[str, Any]) -> GenerationConfig:
    untyped: Any = GenerationConfig  # transformers has no types here
    mark = fields.get("watermarking_config")
    if isinstance(mark, Mapping):  # transformers would take SynthID's fields for a green list
        fields = {**fields, "watermarking_config": parse_watermark(mark)}
    # Fields that the decoding mode does not read are set afterwards: given to the constructor, they
    # make transformers log a warning.
    later = unread(fields)
    if fields.get("early_stopping") not in (True, False, "never"):
        later.discard("early_stopping")  # invalid: the constructor raises
    config: GenerationConfig = untyped(
        **{name: value for name, value in fields.items() if name not in later}
    )
    for name in later:
        setattr(config, name, fields[name])
    return config


FIELDS = frozenset(vars(_config({})))


def values(config: GenerationConfig) -> dict[str, Any]:
    """The fields of a config that are set."""
    return {
        name: value
        for name, value in vars(config).items()
        if value is not None and name not in _METADATA
    }


def configured(
    own: GenerationConfig, strategy: Strategy, settings: Mapping[str, Any]
) -> GenerationConfig:
    """The config of a run: the model's own, changed by the strategy and its settings."""
    known, theirs = vars(own), strategy.own_settings
    fields = {name: value for name, value in settings.items() if name in known}
    config = _config({**values(own), **fields, **strategy.fixed})
    missing = [name for name in settings if name in theirs and name not in known]
    if _picked(config, own) == strategy.id:  # then a missing setting has its default
        missing = [name for name in missing if settings[name] != theirs[name].default]
    if missing:
        raise PlaygroundError(
            f"{strategy.id} cannot be written as a GenerationConfig: it has no field for"
            f" {', '.join(missing)}"
        )
    return config


def changes(own: GenerationConfig, config: GenerationConfig) -> dict[str, tuple[Any, Any]]:
    """The fields that a config changes, as (before, after)."""
    before, after = values(own), values(config)
    return {
        name: (before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    }


def as_json(config: GenerationConfig) -> str:
    """The config as JSON: only the fields that are set."""
    return str(config.to_json_string(use_diff=True))


def save(config: GenerationConfig, path: Path) -> None:
    """Write a config to a file. `save_pretrained` refuses some configs that transformers can run,
    such as contrastive search."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_json(config), encoding="utf-8")
    except OSError as error:
        raise PlaygroundError(f"cannot write {path}: {error.strerror}") from error


def load(path: Path) -> GenerationConfig:
    """Read a config from a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise PlaygroundError(f"{path.name} is not a generation config: it is not text") from error
    except OSError as error:
        beside = [other.name for other in path.parent.glob("*.json")] if path.name else []
        near = did_you_mean(path.name, beside)
        raise PlaygroundError(f"cannot read {path}: {error.strerror}{near}") from error
    return parse(text, path.name)


def parse(text: str, name: str) -> GenerationConfig:
    """Parse a config; unknown fields raise, because they would have no effect."""
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        unknown = [field for field in fields if field not in FIELDS]
        if unknown:
            near = did_you_mean(unknown[0], FIELDS)
            raise PlaygroundError(f"{name} has an unknown field {unknown[0]!r}{near}")
        return _config(fields)
    # transformers raises any of these for a value of an unexpected type.
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise PlaygroundError(f"{name} is not a generation config: {error}") from error


def files(folder: Path) -> list[Path]:
    """The config files of a folder, sorted by name."""
    return sorted(folder.glob("*.json"))
