"""The headline figures of a run, read off its trace, with the words that explain each to people.

Knows traces and the standard library. Refuses to ask a model anything: what nobody captured has no
figure, and how many tokens a figure stands on is told beside it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from engine.trace import Step, Trace

REPEATED = 4  # tokens that must come again in the same order to count as a repetition

# What makes spreadsheets take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class MetricText(NamedTuple):
    """What people read about a figure."""

    name: str
    unit: str
    help: str


def _figure(name: str, help: str, unit: str = "") -> Any:
    return field(metadata={"words": MetricText(name, unit, help)})


@dataclass(frozen=True)
class RunMetrics:
    """One run in numbers. Those of a text are of the best sequence, new tokens only; None where
    there is nothing to tell."""

    tokens: int = _figure("tokens", "How many tokens the best text has.", "tokens")
    seconds: float = _figure("seconds", "How long the run took, whoever else ran beside it.", "s")
    tokens_per_second: float | None = _figure(
        "tokens/s", "Tokens of the best text for every second of the run.", "tokens/s"
    )
    forward_passes: int = _figure(
        "forward passes", "How often the model was called for this run.", "calls"
    )
    draft_passes: int = _figure(
        "draft passes", "How often a draft model, or the model's first layers, was called.", "calls"
    )
    nodes: int = _figure(
        "tokens evaluated",
        "How many tokens models read for this run, those thrown away included.",
        "tokens",
    )
    captured: int = _figure(
        "tokens captured",
        "How many tokens of the best text were seen being chosen: the means are over these.",
        "tokens",
    )
    mean_log_probability: float | None = _figure(
        "mean log-probability",
        "What the model itself gave the tokens of the text, on average, before any processor.",
        "nats",
    )
    perplexity: float | None = _figure(
        "perplexity",
        "The text surprised the model as if it had guessed among this many equally likely tokens "
        "each time; 1 is no surprise at all.",
    )
    mean_entropy: float | None = _figure(
        "mean entropy",
        "How unsure the model was before each token, on average, before any processor.",
        "nats",
    )
    mean_rank: float | None = _figure(
        "mean rank", "The place of the tokens taken in the model's own order, on average."
    )
    first_share: float | None = _figure(
        "first choices", "The share of tokens that were the model's own first choice.", "share"
    )
    distinct_2: float | None = _figure(
        "distinct-2",
        "Different pairs of neighbouring tokens among all pairs: 1 means that no pair came twice.",
        "share",
    )
    repetition: float | None = _figure(
        "repetition",
        f"The share of tokens that stand in {REPEATED} tokens which came before in the same order.",
        "share",
    )
    green_share: float | None = _figure(
        "green tokens", "The share of tokens on the watermark's green list.", "share"
    )
    drafted: int | None = _figure(
        "drafted", "How many tokens were drafted for the model to judge.", "tokens"
    )
    accepted: int | None = _figure(
        "accepted", "How many of the drafted tokens the model kept.", "tokens"
    )
    score: float | None = _figure("score", "What the strategy itself ranked the text by.")
    stop: str = _figure("ended by", "The rule that ended the run.")
    detail: str = _figure("ended how", "What exactly that rule met.")


METRIC_TEXTS: dict[str, MetricText] = {
    item.name: item.metadata["words"] for item in fields(RunMetrics)
}


def run_metrics(trace: Trace) -> RunMetrics:
    """The figures of one run."""
    best = trace.sequences[0] if trace.sequences else None
    ids = best.token_ids if best else ()
    path = [trace.steps[id] for id in best.steps] if best else []
    logs = [step.raw for step in path if step.raw is not None]
    ranks = [step.rank for step in path if step.rank is not None]
    mean_log = _mean(logs)
    drafted, accepted = _drafted(trace)
    return RunMetrics(
        tokens=len(ids),
        seconds=trace.seconds,
        tokens_per_second=len(ids) / trace.seconds if trace.seconds else None,
        forward_passes=trace.forward_passes,
        draft_passes=trace.draft_passes,
        nodes=trace.nodes,
        captured=len(logs),
        mean_log_probability=mean_log,
        perplexity=_perplexity(mean_log),
        mean_entropy=_mean([step.distribution.raw_entropy for step in path if step.distribution]),
        mean_rank=_mean(ranks),
        first_share=_mean([rank == 1 for rank in ranks]),
        distinct_2=_distinct(_grams(ids, 2)),
        repetition=_repetition(ids),
        green_share=_green(path),
        drafted=drafted,
        accepted=accepted,
        score=best.score if best else None,
        stop=trace.stop.rule,
        detail=trace.stop.detail,
    )


def _mean(numbers: Collection[float]) -> float | None:
    return math.fsum(numbers) / len(numbers) if numbers else None


def _perplexity(mean_log: float | None) -> float | None:
    try:
        return None if mean_log is None else math.exp(-mean_log)
    except OverflowError:  # a model may find a forced text as good as impossible
        return None


def _grams(ids: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]


def _distinct(grams: Collection[tuple[int, ...]]) -> float | None:
    return len(set(grams)) / len(grams) if grams else None


def _repetition(ids: Sequence[int]) -> float | None:
    """Tokens inside a gram that began once before; the first occurrence is no repetition."""
    grams = _grams(ids, REPEATED)
    seen: set[tuple[int, ...]] = set()
    again: set[int] = set()  # places of tokens
    for start, gram in enumerate(grams):
        if gram in seen:
            again.update(range(start, start + REPEATED))
        seen.add(gram)
    return len(again) / len(ids) if grams else None


def _green(path: Sequence[Step]) -> float | None:
    """Only of tokens that have a colour: the first ones of a text may have none."""
    return _mean(
        [bool(step.notes["green"]) for step in path if step.notes.get("green") is not None]
    )


def _drafted(trace: Trace) -> tuple[int, int] | tuple[None, None]:
    """How many tokens were drafted, those nobody judged included, and how many of them kept."""
    verdicts = [step.notes["verdict"] for step in trace.steps if "verdict" in step.notes]
    if not verdicts:
        return None, None
    fates = ("accepted", "rejected", "ignored")
    return sum(verdict in fates for verdict in verdicts), verdicts.count("accepted")


def headline(trace: Trace) -> list[tuple[str, str, str]]:
    """The figures a person looks at first: name, value and help, those that there are."""
    told = run_metrics(trace)
    shown = {
        "tokens": _count(told.tokens),
        "seconds": f"{told.seconds:.2f}",
        "tokens_per_second": _decimal(told.tokens_per_second, 1),
        "forward_passes": _count(told.forward_passes),
        "draft_passes": _count(told.draft_passes) if told.draft_passes else None,
        "accepted": None
        if told.drafted is None
        else f"{told.accepted:,} of {told.drafted:,} drafted",
        "captured": None if told.captured == told.tokens else f"{told.captured} of {told.tokens}",
        "mean_log_probability": _decimal(told.mean_log_probability, 2),
        "perplexity": _decimal(told.perplexity, 2),
        "mean_entropy": _decimal(told.mean_entropy, 2),
        "first_share": _percent(told.first_share),
        "distinct_2": _decimal(told.distinct_2, 2),
        "repetition": _percent(told.repetition),
        "green_share": _percent(told.green_share),
        "score": _decimal(told.score, 4),
    }
    return [
        (METRIC_TEXTS[name].name, value, METRIC_TEXTS[name].help)
        for name, value in shown.items()
        if value is not None
    ]


def _count(number: int) -> str:
    return f"{number:,}"


def _decimal(number: float | None, digits: int) -> str | None:
    return None if number is None else f"{number:,.{digits}f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def table(traces: Sequence[Trace], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each run: what it was, its figures, its text."""
    return [
        {
            "run": label,
            "strategy": trace.strategy,
            "settings": json.dumps(trace.settings, ensure_ascii=False, default=str),
            "seed": trace.seed,
            "model": trace.model,
            **vars(run_metrics(trace)),
            "error": trace.error,
            "text": trace.text,
        }
        for trace, label in zip(traces, labels, strict=True)
    ]


def as_csv(traces: Sequence[Trace], labels: Sequence[str]) -> str:
    """The table as a file for spreadsheets; no text in it can become a formula there."""
    rows = table(traces, labels)
    if not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if formula else value
