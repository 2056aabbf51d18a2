"""The command ``race``: every drafter alone on one prompt, and a table of what each was worth.

Knows arguments and spelling. Refuses to measure: `race` does.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import Any

from tqdm import tqdm

from engine.settings import SHARED
from playground.cli import arguments
from playground.lab import Playground
from playground.speculation.drafters import all_drafters
from playground.speculation.lossless import check
from playground.speculation.race import Lane, Race, race

_WORDS = """Each drafter writes alone, one after the other, and so does plain decoding; clocks start
when the prompt has been read. Without --sample what each writes is held against plain decoding,
token by token."""
_COLUMNS = ("", "tokens/s", "speed-up", "tokens/pass", "acceptance", "drafted", "accepted", "text")


def add_race(commands: Any) -> argparse.ArgumentParser:
    """Put ``race`` among the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "race", help="let drafters race against plain decoding", description=_WORDS
    )
    parser.set_defaults(command=run)
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("--chat", action="store_true", help="use the model's chat template")
    parser.add_argument("--sample", action="store_true", help="draw tokens instead of the best")
    length = SHARED["max_new_tokens"].default
    parser.add_argument("--max-new-tokens", type=int, default=length, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the numbers; - is standard output")
    return parser


def run(options: argparse.Namespace) -> None:
    """Race, and print what came of it."""
    lab = Playground(options.model)
    prompt: Any = options.prompt
    if options.chat:
        prompt = [{"role": "user", "content": prompt}]
    shared = dict(arguments.assignment(text) for text in options.set)
    shared |= {"max_new_tokens": options.max_new_tokens, "seed": options.seed}
    running = all_drafters(lab, do_sample=options.sample)
    result = Race(())
    with tqdm(total=len(running), unit="drafter", disable=None, leave=False) as bar:
        for news in race(lab, prompt, running, **shared):
            bar.set_description(news.drafter.name)
            bar.update(int(news.lane is not None))
            result = news.result or result
    if options.json:
        told = [row(result, lane) for lane in result.lanes]
        arguments.write(options.json, json.dumps({"model": lab.model.name, "lanes": told}) + "\n")
    if options.json != "-":
        print(table(result))


def row(result: Race, lane: Lane) -> dict[str, Any]:
    """What a lane came to, as JSON values."""
    told = lane.accounting
    named = {"name": lane.drafter.name, "strategy": lane.drafter.strategy}
    if lane.error or lane.trace is None or told is None:
        return {**named, "error": lane.error}
    return {
        **named,
        "settings": dict(lane.drafter.settings),
        "text": lane.trace.text,
        "tokens_per_second": lane.tokens_per_second,
        "speed_up": result.speed_up(lane),
        "prompt_ms": lane.prompt_ms,
        "arrivals_ms": list(lane.arrivals),
        "acceptance": told.acceptance,
        "compression": told.compression,
        "passes_saved": told.passes_saved,
        "adds_up": told.adds_up,
        **{each.name: getattr(told, each.name) for each in fields(told) if each.type == "int"},
        "same_text": _same(result, lane),
    }


def table(result: Race) -> str:
    """All lanes, one a line."""
    rows = [_COLUMNS, *(_cells(result, lane) for lane in result.lanes)]
    widths = [max(len(line[at]) for line in rows) for at in range(len(_COLUMNS) - 1)]
    lines = []
    for line in rows:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=False)]
        lines.append("  ".join([*cells, line[-1]]).rstrip())
    return "\n".join(lines)


def _cells(result: Race, lane: Lane) -> tuple[str, ...]:
    told = lane.accounting
    if lane.error or told is None:
        return (lane.drafter.name, *("–" for _ in _COLUMNS[2:]), lane.error or "")
    same = _same(result, lane)
    return (
        lane.drafter.name,
        _number(lane.tokens_per_second, "{:.1f}"),
        _number(result.speed_up(lane), "{:.2f}×"),
        _number(told.compression, "{:.2f}"),
        _number(told.acceptance, "{:.0%}"),
        str(told.drafted),
        str(told.accepted),
        "" if same is None else "the same" if same else "differs",
    )


def _same(result: Race, lane: Lane) -> bool | None:
    """Whether a greedy text is the one plain decoding wrote."""
    plain = result.plain
    drawn = lane.drafter.settings.get("do_sample") or lane.drafter.strategy == "sample"
    if plain is None or plain.trace is None or lane is plain or lane.trace is None or drawn:
        return None
    return check(plain.trace, lane.trace).same


def _number(value: float | None, spelling: str) -> str:
    return "–" if value is None else spelling.format(value)
