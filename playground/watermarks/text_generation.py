"""Generates many texts, several in each forward pass, and caches them.

Each text has its own prompt, the opening of a human-written passage. All texts have the same
length: the end token is not allowed before it.
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
from playground.stopping import Stop, Stopped
from playground.watermarks.calibration_result import Progress
from playground.watermarks.disk_cache import DiskCache
from playground.watermarks.human_texts import edition, passages

PROMPT_TOKENS = 20


@dataclass(frozen=True)
class GeneratedText:
    """A generated text, and its surprisal under the unmarked model in nats per token."""

    source: str
    ids: tuple[int, ...]
    surprisal: float


@dataclass(frozen=True)
class GenerationSpec:
    """What to generate. Each text has the next prompt and the next seed."""

    texts: int
    length: int
    seed: int
    settings: Mapping[str, Any]  # sampling settings
    mark: Config | None = None

    def key(self, start: int, end: int) -> dict[str, Any]:
        """The cache key of the texts from ``start`` up to ``end``."""
        return {
            "what": "texts",
            "prompts": [edition(), PROMPT_TOKENS],
            "texts": [start, end],
            "length": self.length,
            "seed": self.seed,
            "settings": dict(self.settings),
            "mark": self.mark.to_dict() if self.mark else None,
        }


def generate_texts(
    lab: Playground, spec: GenerationSpec, stage: str, cache: DiskCache, stop: Stop | None
) -> Generator[Progress, None, list[GeneratedText]]:
    """Generate the texts that are not cached; yield the number of tokens so far."""
    texts: list[GeneratedText] = []
    # Leave half of the KV cache to other requests.
    room = lab.limits.positions // (2 * (spec.length + PROMPT_TOKENS))
    batch = max(1, min(lab.limits.rows, room))
    for start in range(0, spec.texts, batch):
        end = min(start + batch, spec.texts)
        cached = cache.get(spec.key(start, end))
        if cached is None:
            new = yield from _batch(lab, spec, range(start, end), stage, stop)
            cached = [asdict(text) for text in new]
            cache.put(spec.key(start, end), cached)
        texts += [
            GeneratedText(one["source"], tuple(one["ids"]), one["surprisal"]) for one in cached
        ]
        yield Progress(stage, end * spec.length, spec.texts * spec.length, "tokens")
    return texts


def _batch(
    lab: Playground, spec: GenerationSpec, numbers: range, stage: str, stop: Stop | None
) -> Generator[Progress, None, list[GeneratedText]]:
    """Generate texts side by side, in one forward pass per tick."""
    prompts = [_prompt(lab, spec.seed, number) for number in numbers]
    runs = [
        (text, ("sample", {**spec.settings, "seed": spec.seed + number}))
        for number, (_, text) in zip(numbers, prompts, strict=True)
    ]
    shared: dict[str, Any] = {"max_new_tokens": spec.length, "min_new_tokens": spec.length}
    if spec.mark is not None:
        shared["watermarking_config"] = spec.mark
    traces: dict[int, Trace] = {}
    done = numbers.start * spec.length
    for update in lab.stream_each(runs, stop=stop, **shared):
        done += len(update.steps)
        if update.trace is not None:
            traces[update.run] = update.trace
        yield Progress(stage, done, spec.texts * spec.length, "tokens")
    return [_text(traces[run], source) for run, (source, _) in enumerate(prompts)]


def _prompt(lab: Playground, seed: int, number: int) -> tuple[str, str]:
    """A prompt's source and text; every passage is used once before any is used again."""
    known = passages()
    order = Random(seed).sample(range(len(known)), len(known))
    passage = known[order[number % len(known)]]
    ids = lab.model.tokenizer(passage.text, add_special_tokens=False).input_ids
    return passage.source, lab.token_decoder.text(ids[:PROMPT_TOKENS], at_start=True)


def _text(trace: Trace, source: str) -> GeneratedText:
    if trace.stop.rule == "cancelled":
        raise Stopped
    if trace.error:
        raise PlaygroundError(trace.error)
    [text] = trace.sequences
    raw = [trace.steps[step].raw for step in text.steps]
    return GeneratedText(source, text.token_ids, -fmean(log for log in raw if log is not None))
