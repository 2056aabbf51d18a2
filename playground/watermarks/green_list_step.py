"""What a green list did at one step of a run: which candidates were on it, before and after.

Knows traces and green lists. Refuses to draw. Probabilities are those the run captured; which of
the candidates are green was not, and is worked out again from the key and the tokens before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import WatermarkingConfig

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.trace import Distribution, Step, Trace
from engine.trace.distributions import GREEN_LIST
from engine.watermark import config as marks
from engine.watermark.green_list import green_lists


class Choice(NamedTuple):
    """One candidate of a step, with its probability before and after the bias."""

    token: str
    before: float
    after: float
    green: bool
    chosen: bool


class GreenListStep(NamedTuple):
    """One step. ``share`` is what part of the vocabulary is green; the two others are what part of
    the captured probability is green."""

    at: int  # place in the text, from 0
    share: float
    bias: float
    entropy: float  # before any processor, in nats
    choices: tuple[Choice, ...]

    @property
    def green_before(self) -> float:
        """Green candidates' probability without the bias."""
        return sum(choice.before for choice in self.choices if choice.green)

    @property
    def green_after(self) -> float:
        """Green candidates' probability with it."""
        return sum(choice.after for choice in self.choices if choice.green)

    @property
    def captured(self) -> float:
        """What the candidates have together without the bias; the rest was not captured."""
        return sum(choice.before for choice in self.choices)


def watermark_of(settings: Mapping[str, Any]) -> marks.Config | None:
    """The watermark a run was written with, if any; one that nobody can read is none."""
    try:
        return (
            marks.mark_to_write(given) if (given := settings.get("watermarking_config")) else None
        )
    except PlaygroundError:
        return None


def explain(model: Model, trace: Trace, at: int) -> GreenListStep:
    """What the green list did at a place of the best text, counted from 0 with what stood before.
    A place that the run did not write is moved to the nearest one that it did."""
    config = watermark_of(trace.settings)
    if not isinstance(config, WatermarkingConfig):
        raise PlaygroundError("this run has no green list; SynthID marks by other means")
    if not trace.sequences or not trace.sequences[0].steps:
        raise PlaygroundError("this run has written nothing that could be explained")
    path = [trace.steps[id] for id in trace.sequences[0].steps]
    place = min(max(at - len(trace.prefix), 0), len(path) - 1)
    step = path[place]
    if step.distribution is None or GREEN_LIST not in step.distribution.processors:
        raise PlaygroundError("what the bias did at this step was not captured")
    tokens = (*trace.prompt_tokens, *trace.prefix, *(one.token for one in path[:place]))
    before = tuple(token.id for token in tokens)
    return _explained(model, config, step, step.distribution, before, len(trace.prefix) + place)


def _explained(
    model: Model,
    config: WatermarkingConfig,
    step: Step,
    given: Distribution,
    before: tuple[int, ...],
    at: int,
) -> GreenListStep:
    stage = given.processors.index(GREEN_LIST)
    vocabulary = int(model.module.config.get_text_config().vocab_size)
    size = int(vocabulary * config.greenlist_ratio)
    ids = [candidate.token.id for candidate in given.candidates]
    greens = _green(model, config, before, ids, vocabulary, size)
    choices = (
        Choice(
            token=candidate.token.text,
            before=candidate.stages[stage - 1] if stage else candidate.raw,
            after=candidate.stages[stage],
            green=green,
            chosen=candidate.token.id == step.token.id,
        )
        for candidate, green in zip(given.candidates, greens, strict=True)
    )
    return GreenListStep(at, size / vocabulary, config.bias, given.raw_entropy, tuple(choices))


def _green(
    model: Model,
    config: WatermarkingConfig,
    before: tuple[int, ...],
    ids: list[int],
    vocabulary: int,
    size: int,
) -> list[bool]:
    """Of each token whether it is on the list that stands after ``before``."""
    width, selfhash = config.context_width, config.seeding_scheme == "selfhash"
    if len(before) < width:
        return [False] * len(ids)  # the processor leaves such a step as it is
    scheme, key = config.seeding_scheme, config.hashing_key
    lists = green_lists(vocabulary, str(model.device), scheme, key, width)
    known = width - selfhash  # a token that seeds its own list is part of the context
    context = before[len(before) - known :] if known else ()
    draws = lists.draws([(*context, id) for id in ids], len(ids))
    return [draw.place < size for draw in draws]
