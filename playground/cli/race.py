"""The command ``race``: runs each drafter alone on one prompt and prints their speed."""

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

_DESCRIPTION = """Run each drafter alone, one after the other, and plain decoding as the baseline;
the clock starts after the prompt is processed. Without --sample each text is compared with plain
decoding token by token."""
_COLUMNS = ("", "tokens/s", "speed-up", "tokens/pass", "acceptance", "drafted", "accepted", "text")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "race", help="measure drafters against plain decoding", description=_DESCRIPTION
    )
    parser.set_defaults(command=run)
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument("--chat", action="store_true", help="apply the model's chat template")
    parser.add_argument("--sample", action="store_true", help="sample instead of greedy decoding")
    length = SHARED["max_new_tokens"].default
    parser.add_argument("--max-new-tokens", type=int, default=length, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the figures; - is standard output")
    arguments.add_model(parser)
    arguments.add_settings(parser)


def run(options: argparse.Namespace) -> None:
    """Run the race; print the table or write the JSON."""
    lab = Playground(options.model)
    settings = arguments.settings(options)
    settings |= {"max_new_tokens": options.max_new_tokens, "seed": options.seed}
    drafters = all_drafters(lab, do_sample=options.sample)
    result = Race(())
    with tqdm(total=len(drafters), unit="drafter", disable=None, leave=False) as bar:
        for update in race(lab, arguments.prompt(options), drafters, **settings):
            bar.set_description(update.drafter.name)
            bar.update(int(update.lane is not None))
            result = update.result or result
    if options.json:
        lanes = [_json(result, lane) for lane in result.lanes]
        arguments.write(options.json, json.dumps({"model": lab.model.name, "lanes": lanes}) + "\n")
    if options.json != "-":
        print(_table(result))


def _json(result: Race, lane: Lane) -> dict[str, Any]:
    """One lane as JSON values."""
    accounting = lane.accounting
    named = {"name": lane.drafter.name, "strategy": lane.drafter.strategy}
    if lane.error or lane.trace is None or accounting is None:
        return {**named, "error": lane.error}
    counts = [field.name for field in fields(accounting) if field.type == "int"]
    return {
        **named,
        "settings": dict(lane.drafter.settings),
        "text": lane.trace.text,
        "tokens_per_second": lane.tokens_per_second,
        "speed_up": result.speed_up(lane),
        "prompt_ms": lane.prompt_ms,
        "arrivals_ms": list(lane.arrivals),
        "acceptance": accounting.acceptance,
        "compression": accounting.compression,
        "passes_saved": accounting.passes_saved,
        "adds_up": accounting.adds_up,
        **{name: getattr(accounting, name) for name in counts},
        "same_text": _same_text(result, lane),
    }


def _table(result: Race) -> str:
    """All lanes, one per line."""
    rows = [_COLUMNS, *(_cells(result, lane) for lane in result.lanes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _cells(result: Race, lane: Lane) -> tuple[str, ...]:
    accounting = lane.accounting
    if lane.error or accounting is None:
        return (lane.drafter.name, *("–" for _ in _COLUMNS[2:]), lane.error or "")
    same = _same_text(result, lane)
    return (
        lane.drafter.name,
        _number(lane.tokens_per_second, "{:.1f}"),
        _number(result.speed_up(lane), "{:.2f}×"),
        _number(accounting.compression, "{:.2f}"),
        _number(accounting.acceptance, "{:.0%}"),
        str(accounting.drafted),
        str(accounting.accepted),
        "" if same is None else "the same" if same else "differs",
    )


def _same_text(result: Race, lane: Lane) -> bool | None:
    """Whether a greedy text equals the one of plain decoding; None for sampled texts."""
    plain = result.plain
    sampled = lane.drafter.settings.get("do_sample") or lane.drafter.strategy == "sample"
    if plain is None or plain.trace is None or lane is plain or lane.trace is None or sampled:
        return None
    return check(plain.trace, lane.trace).same


def _number(value: float | None, format: str) -> str:
    return "–" if value is None else format.format(value)
