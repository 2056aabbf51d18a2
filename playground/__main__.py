"""The command line: ``python -m playground``, and one of its commands.

Knows arguments, files and streams. Data goes to standard output, progress to standard error; what
a person may read comes as one line and exit status 2; ``detect`` answers with its status too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import GenerationConfig

import strategies
from engine.errors import PlaygroundError
from engine.models import loading
from engine.settings import SHARED, Limits, Setting
from engine.trace import Trace, dump_traces
from playground import generation_configs
from playground.cli import calibrate as cli_calibrate
from playground.cli import detect as cli
from playground.cli import race as speculation
from playground.cli.arguments import assignment, choice, write
from playground.lab import Choice, Playground


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options) or 0)
    except PlaygroundError as error:
        print(f"playground: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _compare(options: argparse.Namespace) -> None:
    """Run strategies side by side and print what they wrote."""
    choices: list[Choice] = [choice(text) for text in options.run]
    choices += [generation_configs.load(Path(file)) for file in options.config]
    choices = choices or ["greedy"]
    shared = dict(assignment(text) for text in options.set)
    given = {"max_new_tokens": options.max_new_tokens, "seed": options.seed}
    shared |= {name: value for name, value in given.items() if value is not None}
    lab = Playground(options.model, allow_custom=options.allow_custom)
    prompt = [{"role": "user", "content": options.prompt}] if options.chat else options.prompt
    traces = _run(lab, prompt, choices, shared)
    if options.json:
        write(options.json, dump_traces(traces))
    if options.html:
        from playground.export.report import report  # figures need plotly, comparing does not

        write(options.html, report(traces))
    if "-" not in (options.json, options.html):
        print("\n\n".join(_paragraph(trace) for trace in traces))


def _run(
    lab: Playground, prompt: Any, choices: Sequence[Choice], shared: dict[str, Any]
) -> list[Trace]:
    """Compare with a bar that counts the tokens of every run's leading text."""
    traces: dict[int, Trace] = {}
    written = [0] * len(choices)
    expected = len(choices) * shared.get("max_new_tokens", SHARED["max_new_tokens"].default)
    with tqdm(total=expected, unit="token", disable=None, leave=False) as bar:
        for update in lab.stream(prompt, choices, **shared):
            depths = [step.tick + 1 for step in update.steps]
            written[update.run] = max([written[update.run], *depths])
            bar.update(sum(written) - bar.n)
            if update.trace is not None:
                traces[update.run] = update.trace
    return [traces[run] for run in range(len(choices))]


def _paragraph(trace: Trace) -> str:
    """One run as text: its name, what it wrote, and why it ended."""
    lines = [f"# {trace.strategy}"]
    for sequence in trace.sequences:
        score = "" if sequence.score is None else f"{sequence.score:.4f}  "
        lines.append(score + sequence.text)
    reason = trace.error or f"{trace.stop.rule} {trace.stop.detail}".strip()
    lines.append(f"({reason}; {trace.forward_passes} forward passes, {trace.seconds:.2f} s)")
    return "\n".join(lines)


def _strategies(options: argparse.Namespace) -> None:
    """List every strategy and its settings."""
    limits = Limits()
    for found in strategies.registered().values():
        print(f"{found.id}\n    {found.summary}")
        for setting in found.own_settings.values():
            print(_row(setting, limits))
    print("every strategy also takes")
    for setting in SHARED.values():
        if not setting.python_only:
            print(_row(setting, limits))


def _row(setting: Setting, limits: Limits) -> str:
    default = "" if setting.default is None else f" (default {setting.default})"
    return f"    {setting.name}: {setting.allowed(limits)}{default}. {setting.help}"


def _config(options: argparse.Namespace) -> None:
    """Show the model's own generation config and those of a folder, or write one there."""
    lab = Playground(options.model)
    own, folder = lab.model.module.generation_config, Path(options.folder or ".")
    if options.save:
        settings = dict(assignment(text) for text in options.set)
        config = lab.configuration(choice(options.run), **settings)
        path = folder / f"{options.save}.json"
        generation_configs.save(config, path)
        print(f"# {path}\n{_changes(own, config)}")
        return
    print(f"# {lab.model.name}, its own\n{generation_configs.as_json(own).rstrip()}")
    for path in generation_configs.files(folder) if options.folder else []:
        config = generation_configs.load(path)
        strategy, _ = generation_configs.choice(config, own, 0)
        print(f"\n# {path}, {strategy}\n{_changes(own, config)}")


def _changes(own: GenerationConfig, config: GenerationConfig) -> str:
    changed = generation_configs.changes(own, config).items()
    lines = [f"{name}: {before!r} -> {after!r}" for name, (before, after) in changed]
    return "\n".join(lines) or "nothing is changed"


def _recipe(options: argparse.Namespace) -> None:
    """Write a strategy as a folder that transformers loads by itself."""
    from playground.export import recipe

    for path in recipe.write(options.strategy, Path(options.folder)):
        print(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m playground", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    compare = commands.add_parser("compare", help="run strategies side by side")
    compare.set_defaults(command=_compare)
    compare.add_argument("prompt", metavar="PROMPT")
    compare.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="STRATEGY[:NAME=VALUE,...]",
        help="a strategy and its settings (values are JSON); repeat it to compare several",
    )
    compare.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="a generation config to run; repeat it to compare several",
    )
    compare.add_argument("--chat", action="store_true", help="use the model's chat template")
    length, seed = SHARED["max_new_tokens"], SHARED["seed"]
    compare.add_argument("--max-new-tokens", type=int, help=f"default {length.default}")
    compare.add_argument("--seed", type=int, help=f"default {seed.default}")
    compare.add_argument(
        "--allow-custom", action="store_true", help="let the strategy custom run the code it names"
    )
    compare.add_argument("--json", metavar="FILE", help="write the traces; - is standard output")
    compare.add_argument("--html", metavar="FILE", help="write one self-contained page")

    listing = commands.add_parser("strategies", help="list strategies and their settings")
    listing.set_defaults(command=_strategies)

    detect = cli.add_detect(commands)
    calibrate = cli_calibrate.add_calibrate(commands)
    race = speculation.add_race(commands)

    recipe = commands.add_parser("recipe", help="write a strategy as a custom_generate folder")
    recipe.set_defaults(command=_recipe)
    recipe.add_argument("strategy", metavar="STRATEGY")
    recipe.add_argument("folder", metavar="FOLDER")

    config = commands.add_parser(
        "config", help="show generation configs beside the model's own, or save one"
    )
    config.set_defaults(command=_config)
    config.add_argument("folder", metavar="FOLDER", nargs="?", help="where they lie")
    config.add_argument("--save", metavar="NAME", help="write a run's config as NAME.json there")
    config.add_argument("--run", default="greedy", metavar="STRATEGY[:NAME=VALUE,...]")

    for command in (compare, detect, calibrate, race, config):
        command.add_argument("--model", default=loading.DEFAULT, help="a name, folder or Hub id")
        command.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE", help="a further setting"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
