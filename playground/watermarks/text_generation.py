"""Many texts from one model, each from a prompt of its own, several in every pass.

Knows how to have texts written and kept. Refuses to judge them. Prompts are the openings of the
human-written passages; every text has the length asked for, because an end token is not allowed
before it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from random import Random
from statistics import fmean
from typing import Any

from engine.errors import PlaygroundError
from engine.trace import Trace
from engine.watermark.config import Config
from playground.lab import Playground
from playground.watermarks.attacks.registry import Stop, Stopped
from playground.watermarks.calibration_result import Progress
from playground.watermarks.disk_cache import DiskCache
from playground.watermarks.human_texts import edition, passages

PROMPT_TOKENS = 20


@dataclass(frozen=True)
class Written:
    """A text the model wrote, and what the model without a mark thinks of it, in nats a token."""

    source: str
    ids: tuple[int, ...]
    surprisal: float


@dataclass(frozen=True)
class Order:
    """What is to be written: text by text the next prompt and the next seed."""

    texts: int
    length: int
    seed: int
    settings: Mapping[str, Any]  # of sampling
    mark: Config | None = None

    def key(self, start: int, end: int) -> dict[str, Any]:
        """What texts ``start`` up to ``end`` depend on."""
        return {
            "what": "texts",
            "prompts": [edition(), PROMPT_TOKENS],
            "texts": [start, end],
            "length": self.length,
            "seed": self.seed,
            "settings": dict(self.settings),
            "mark": self.mark.to_dict() if self.mark else None,
        }


def write(
    lab: Playground, order: Order, stage: str, shelf: DiskCache, stop: Stop | None
) -> Generator[Progress, None, list[Written]]:
    """Have texts written, those that are kept apart; tells how many tokens there are so far."""
    written: list[Written] = []
    # Half of the cache is left to whoever else asks the model something.
    room = lab.limits.positions // (2 * (order.length + PROMPT_TOKENS))
    batch = max(1, min(lab.limits.rows, room))
    for start in range(0, order.texts, batch):
        end = min(start + batch, order.texts)
        kept = shelf.get(order.key(start, end))
        if kept is None:
            new = yield from _batch(lab, order, range(start, end), stage, stop)
            kept = [asdict(text) for text in new]
            shelf.put(order.key(start, end), kept)
        written += [Written(one["source"], tuple(one["ids"]), one["surprisal"]) for one in kept]
        yield Progress(stage, end * order.length, order.texts * order.length, "tokens")
    return written


def _batch(
    lab: Playground, order: Order, numbers: range, stage: str, stop: Stop | None
) -> Generator[Progress, None, list[Written]]:
    """Texts that are written side by side, in one pass a tick."""
    prompts = [_prompt(lab, order.seed, number) for number in numbers]
    asked = [
        (text, ("sample", {**order.settings, "seed": order.seed + number}))
        for number, (_, text) in zip(numbers, prompts, strict=True)
    ]
    shared: dict[str, Any] = {"max_new_tokens": order.length, "min_new_tokens": order.length}
    if order.mark is not None:
        shared["watermarking_config"] = order.mark
    traces: dict[int, Trace] = {}
    done = numbers.start * order.length
    for update in lab.stream_each(asked, stop=stop, **shared):
        done += len(update.steps)
        if update.trace is not None:
            traces[update.run] = update.trace
        yield Progress(stage, done, order.texts * order.length, "tokens")
    return [_written(traces[run], source) for run, (source, _) in enumerate(prompts)]


def _prompt(lab: Playground, seed: int, number: int) -> tuple[str, str]:
    """Where a prompt is from, and the opening words; all passages serve once before any again."""
    known = passages()
    order = Random(seed).sample(range(len(known)), len(known))
    passage = known[order[number % len(known)]]
    ids = lab.model.tokenizer(passage.text, add_special_tokens=False).input_ids
    return passage.source, lab.speller.text(ids[:PROMPT_TOKENS], fresh=True)


def _written(trace: Trace, source: str) -> Written:
    if trace.stop.rule == "cancelled":
        raise Stopped
    if trace.error:
        raise PlaygroundError(trace.error)
    [text] = trace.sequences
    raw = [trace.steps[step].raw for step in text.steps]
    return Written(source, text.token_ids, -fmean(log for log in raw if log is not None))
