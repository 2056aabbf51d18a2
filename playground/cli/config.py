"""The command ``config``: shows generation configs beside the model's own, or saves one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from playground import generation_configs
from playground.cli import arguments
from playground.lab import Playground


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "config", help="show generation configs beside the model's own, or save one"
    )
    parser.set_defaults(command=run)
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="the folder of the configs")
    parser.add_argument("--save", metavar="NAME", help="save a run's config as FOLDER/NAME.json")
    parser.add_argument("--run", default="greedy", metavar="STRATEGY[:NAME=VALUE,...]")
    arguments.add_model(parser)
    arguments.add_settings(parser)


def run(options: argparse.Namespace) -> None:
    """Print the configs, or save one."""
    lab = Playground(options.model)
    own, folder = lab.model.module.generation_config, Path(options.folder or ".")
    if options.save:
        config = lab.configuration(arguments.strategy(options.run), **arguments.settings(options))
        path = folder / f"{options.save}.json"
        generation_configs.save(config, path)
        print(f"# {path}\n{_changes(own, config)}")
        return
    print(f"# {lab.model.name}, the model's own\n{generation_configs.as_json(own).rstrip()}")
    for path in generation_configs.files(folder) if options.folder else []:
        config = generation_configs.load(path)
        strategy, _ = generation_configs.choice(config, own, 0)
        print(f"\n# {path}, {strategy}\n{_changes(own, config)}")


def _changes(own: GenerationConfig, config: GenerationConfig) -> str:
    changed = generation_configs.changes(own, config).items()
    lines = [f"{name}: {before!r} -> {after!r}" for name, (before, after) in changed]
    return "\n".join(lines) or "no changes"
