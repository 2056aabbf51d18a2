"""The metrics of a run, computed from its trace, with a name, a unit and a help text for each.

Means are over the tokens whose distribution was captured; `RunMetrics.captured` counts them.
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

REPEATED = 4  # length of the n-grams that count as a repetition

# Spreadsheets take a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class MetricText(NamedTuple):
    """A metric's name, unit and help text."""

    name: str
    unit: str
    help: str


def _figure(name: str, help: str, unit: str = "") -> Any:
    return field(metadata={"words": MetricText(name, unit, help)})


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of one run. Those of a text are of the best sequence, new tokens only; None if
    not applicable or not captured."""

    tokens: int = _figure("tokens", "Tokens of the best text.", "tokens")
    seconds: float = _figure(
        "seconds",
        "Duration of the run; columns run in the same passes, so this includes the time of the "
        "others' tokens in them.",
        "s",
    )
    first_token_seconds: float | None = _figure(
        "first token",
        "Time until the first token was chosen: preparation and the pass over the prompt, which "
        "all columns share.",
        "s",
    )
    tokens_per_second: float | None = _figure(
        "tokens/s", "Tokens of the best text per second of the run.", "tokens/s"
    )
    forward_passes: int = _figure(
        "forward passes",
        "Calls of the model for this run; the call for the prompt is made once for all columns.",
        "calls",
    )
    draft_passes: int = _figure(
        "draft passes", "Calls of a draft model, or of the model's first layers.", "calls"
    )
    nodes: int = _figure(
        "tokens evaluated",
        "Tokens that models processed for this run, discarded ones included.",
        "tokens",
    )
    prompt_nodes: int | None = _figure(
        "prompt tokens evaluated",
        "Tokens of the prompt that were evaluated for this run; 0 where another column or an "
        "earlier run evaluated them.",
        "tokens",
    )
    pass_share: float | None = _figure(
        "share of the passes",
        "This run's share of the tokens in the model's passes after the prompt's: a token that "
        "several columns need is divided among them, and since the time of a pass does not grow in "
        "proportion to its tokens, this is not a share of the time.",
        "share",
    )
    captured: int = _figure(
        "tokens captured",
        "Tokens of the best text whose distribution was captured; the means are over these.",
        "tokens",
    )
    mean_log_probability: float | None = _figure(
        "mean log-probability",
        "Mean log-probability of the tokens under the model, before any processor.",
        "nats",
    )
    perplexity: float | None = _figure(
        "perplexity",
        "The exponential of the negative mean log-probability: as uncertain as a choice among this "
        "many equally likely tokens.",
    )
    mean_entropy: float | None = _figure(
        "mean entropy",
        "Mean entropy of the model's distribution before each token, before any processor.",
        "nats",
    )
    mean_rank: float | None = _figure(
        "mean rank", "Mean rank of the chosen tokens under the model."
    )
    first_share: float | None = _figure(
        "first choices", "Share of tokens that were the most probable under the model.", "share"
    )
    distinct_2: float | None = _figure(
        "distinct-2",
        "Distinct bigrams divided by all bigrams: 1 means that none is repeated.",
        "share",
    )
    repetition: float | None = _figure(
        "repetition",
        f"Share of tokens inside a {REPEATED}-gram that occurred earlier in the text.",
        "share",
    )
    green_share: float | None = _figure(
        "green tokens", "Share of tokens on the watermark's green list.", "share"
    )
    drafted: int | None = _figure("drafted", "Tokens drafted for the model to verify.", "tokens")
    accepted: int | None = _figure("accepted", "Drafted tokens that the model accepted.", "tokens")
    score: float | None = _figure("score", "The strategy's own score of the text.")
    stop: str = _figure("ended by", "The rule that ended the run.")
    detail: str = _figure("ended how", "Details of that rule.")


METRIC_TEXTS: dict[str, MetricText] = {
    item.name: item.metadata["words"] for item in fields(RunMetrics)
}


def run_metrics(trace: Trace) -> RunMetrics:
    """Compute the metrics of one run."""
    best = trace.sequences[0] if trace.sequences else None
    ids = best.token_ids if best else ()
    path = [trace.steps[id] for id in best.steps] if best else []
    logs = [step.raw for step in path if step.raw is not None]
    ranks = [step.rank for step in path if step.rank is not None]
    entropies = [
        step.distribution.raw_entropy
        for step in path
        if step.distribution and step.distribution.raw_entropy is not None
    ]
    mean_log = _mean(logs)
    drafted, accepted = _drafted(trace)
    return RunMetrics(
        tokens=len(ids),
        seconds=trace.seconds,
        first_token_seconds=_first_token(trace),
        tokens_per_second=len(ids) / trace.seconds if trace.seconds else None,
        forward_passes=trace.forward_passes,
        draft_passes=trace.draft_passes,
        nodes=trace.nodes,
        prompt_nodes=_prompt_nodes(trace),
        pass_share=_pass_share(trace),
        captured=len(logs),
        mean_log_probability=mean_log,
        perplexity=_perplexity(mean_log),
        mean_entropy=_mean(entropies),
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


def _first_token(trace: Trace) -> float | None:
    before = 0.0
    for tick in trace.ticks:
        if tick.decided_ms is not None:
            return (before + tick.decided_ms) / 1000
        before += tick.ms
    return None


def _prompt_nodes(trace: Trace) -> int | None:
    known = [tick.prompt_nodes for tick in trace.ticks if tick.prompt_nodes is not None]
    return sum(known) if known else None


def _pass_share(trace: Trace) -> float | None:
    """None where the run had all passes for itself or their tokens were not captured."""
    every = sum(tick.pass_nodes or 0 for tick in trace.ticks)
    own = sum(tick.own_nodes or 0 for tick in trace.ticks)
    return own / every if own < every else None


def _mean(numbers: Collection[float]) -> float | None:
    return math.fsum(numbers) / len(numbers) if numbers else None


def _perplexity(mean_log: float | None) -> float | None:
    try:
        return None if mean_log is None else math.exp(-mean_log)
    except OverflowError:  # a forced text can be all but impossible under the model
        return None


def _grams(ids: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]


def _distinct(grams: Collection[tuple[int, ...]]) -> float | None:
    return len(set(grams)) / len(grams) if grams else None


def _repetition(ids: Sequence[int]) -> float | None:
    """The share of tokens inside a repeated n-gram; the first occurrence does not count."""
    grams = _grams(ids, REPEATED)
    seen: set[tuple[int, ...]] = set()
    repeated: set[int] = set()  # positions
    for start, gram in enumerate(grams):
        if gram in seen:
            repeated.update(range(start, start + REPEATED))
        seen.add(gram)
    return len(repeated) / len(ids) if grams else None


def _green(path: Sequence[Step]) -> float | None:
    """The share of green tokens among those with a colour: the first ones may have none."""
    return _mean(
        [bool(step.notes["green"]) for step in path if step.notes.get("green") is not None]
    )


def _drafted(trace: Trace) -> tuple[int, int] | tuple[None, None]:
    """The number of drafted tokens, discarded ones included, and of accepted ones."""
    verdicts = [step.notes["verdict"] for step in trace.steps if "verdict" in step.notes]
    if not verdicts:
        return None, None
    drafted = ("accepted", "rejected", "ignored")
    return sum(verdict in drafted for verdict in verdicts), verdicts.count("accepted")


def headline(trace: Trace) -> list[tuple[str, str, str]]:
    """The most important metrics as (name, formatted value, help), without missing ones."""
    found = run_metrics(trace)
    shown = {
        "tokens": _count(found.tokens),
        "seconds": f"{found.seconds:.2f}",
        "first_token_seconds": _decimal(found.first_token_seconds, 2),
        "tokens_per_second": _decimal(found.tokens_per_second, 1),
        "forward_passes": _passes(found),
        "draft_passes": _count(found.draft_passes) if found.draft_passes else None,
        "pass_share": _share_of_passes(trace, found.pass_share),
        "accepted": None
        if found.drafted is None
        else f"{found.accepted:,} of {found.drafted:,} drafted",
        "captured": None
        if found.captured == found.tokens
        else f"{found.captured} of {found.tokens}",
        "mean_log_probability": _decimal(found.mean_log_probability, 2),
        "perplexity": _decimal(found.perplexity, 2),
        "mean_entropy": _decimal(found.mean_entropy, 2),
        "first_share": _percent(found.first_share),
        "distinct_2": _decimal(found.distinct_2, 2),
        "repetition": _percent(found.repetition),
        "green_share": _percent(found.green_share),
        "score": _decimal(found.score, 4),
    }
    return [
        (METRIC_TEXTS[name].name, value, METRIC_TEXTS[name].help)
        for name, value in shown.items()
        if value is not None
    ]


def _passes(found: RunMetrics) -> str:
    """The forward passes, that of the prompt apart."""
    if not found.prompt_nodes:
        return _count(found.forward_passes)
    return f"{_count(found.forward_passes - 1)} + 1 for the prompt"


def _share_of_passes(trace: Trace, share: float | None) -> str | None:
    """The share, and the tokens per pass that it stands for."""
    shared = [tick for tick in trace.ticks if tick.pass_nodes]
    if share is None or not shared:
        return None
    every = sum(tick.pass_nodes or 0 for tick in shared) / len(shared)
    return f"{share:.0%} ({share * every:.1f} of {every:.1f} tokens per pass)"


def _count(number: int) -> str:
    return f"{number:,}"


def _decimal(number: float | None, digits: int) -> str | None:
    return None if number is None else f"{number:,.{digits}f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def table(traces: Sequence[Trace], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One row per run: strategy, settings, metrics and text."""
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
    """The table as CSV; no cell can be taken for a formula by a spreadsheet."""
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
