"""The command ``compare``: runs strategies side by side and prints their texts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from engine.settings import SHARED
from engine.trace import Trace, dump_traces
from playground import generation_configs
from playground.cli import arguments
from playground.lab import Playground
from playground.requests import StrategyChoice


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("compare", help="run strategies side by side")
    parser.set_defaults(command=run)
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="STRATEGY[:NAME=VALUE,...]",
        help="a strategy and its settings (values are JSON); repeat to compare several",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="a generation config to run; repeat to compare several",
    )
    parser.add_argument("--chat", action="store_true", help="apply the model's chat template")
    length, seed = SHARED["max_new_tokens"], SHARED["seed"]
    parser.add_argument("--max-new-tokens", type=int, help=f"default {length.default}")
    parser.add_argument("--seed", type=int, help=f"default {seed.default}")
    parser.add_argument(
        "--allow-custom",
        action="store_true",
        help="allow the strategy custom, which runs code that its settings name",
    )
    parser.add_argument("--json", metavar="FILE", help="write the traces; - is standard output")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    arguments.add_model(parser)
    arguments.add_settings(parser)


def run(options: argparse.Namespace) -> None:
    """Compare the strategies; print the texts or write the files."""
    choices: list[StrategyChoice] = [arguments.strategy(text) for text in options.run]
    choices += [generation_configs.load(Path(file)) for file in options.config]
    choices = choices or ["greedy"]
    shared = arguments.settings(options)
    named = {"max_new_tokens": options.max_new_tokens, "seed": options.seed}
    shared |= {name: value for name, value in named.items() if value is not None}
    lab = Playground(options.model, allow_custom=options.allow_custom)
    traces = _compare(lab, arguments.prompt(options), choices, shared)
    if options.json:
        arguments.write(options.json, dump_traces(traces))
    if options.html:
        from playground.export.report import report  # needs plotly and Jinja2; the rest does not

        arguments.write(options.html, report(traces))
    if "-" not in (options.json, options.html):
        print("\n\n".join(_paragraph(trace) for trace in traces))


def _compare(
    lab: Playground, prompt: Any, choices: Sequence[StrategyChoice], shared: dict[str, Any]
) -> list[Trace]:
    """Compare with a progress bar that counts each run's tokens."""
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
    """One run as text: strategy, returned texts with scores, stop reason and cost."""
    lines = [f"# {trace.strategy}"]
    for sequence in trace.sequences:
        score = "" if sequence.score is None else f"{sequence.score:.4f}  "
        lines.append(score + sequence.text)
    reason = trace.error or f"{trace.stop.rule} {trace.stop.detail}".strip()
    lines.append(f"({reason}; {trace.forward_passes} forward passes, {trace.seconds:.2f} s)")
    return "\n".join(lines)
