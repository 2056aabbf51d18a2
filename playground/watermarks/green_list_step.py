"""The effect of a green list at one step of a run: its candidates before and after the bias.

Probabilities are those that the run captured. Which candidates are green is computed again from the
key and the preceding tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import WatermarkingConfig

from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.trace import Distribution, Step, Trace
from engine.watermark import config as marks
from engine.watermark.green_list import STAGE, green_lists


class Candidate(NamedTuple):
    """One candidate of a step, with its probability before and after the bias."""

    token: str
    before: float
    after: float
    green: bool
    chosen: bool


class GreenListStep(NamedTuple):
    """One step of a run with a green list; ``share`` is the green share of the vocabulary."""

    at: int  # position in the text, from 0
    share: float
    bias: float
    entropy: float | None  # of the model, in nats; None: not captured
    choices: tuple[Candidate, ...]

    @property
    def green_before(self) -> float:
        """The probability of the green candidates before the bias."""
        return sum(choice.before for choice in self.choices if choice.green)

    @property
    def green_after(self) -> float:
        """The probability of the green candidates after the bias."""
        return sum(choice.after for choice in self.choices if choice.green)

    @property
    def captured(self) -> float:
        """The probability of all candidates before the bias; the rest was not captured."""
        return sum(choice.before for choice in self.choices)


def watermark_of(settings: Mapping[str, Any]) -> marks.Config | None:
    """The watermark of a run, or None if it has none or an invalid one."""
    try:
        return (
            marks.parse_watermark(given) if (given := settings.get("watermarking_config")) else None
        )
    except PlaygroundError:
        return None


def explain(model: Model, trace: Trace, at: int) -> GreenListStep:
    """The effect of the green list at a position of the best text, counted from 0 with the prefix
    and moved to the nearest position that the run generated."""
    config = watermark_of(trace.settings)
    if not isinstance(config, WatermarkingConfig):
        raise PlaygroundError("this run has no green list; SynthID uses none")
    if not trace.sequences or not trace.sequences[0].steps:
        raise PlaygroundError("this run generated no tokens")
    path = [trace.steps[id] for id in trace.sequences[0].steps]
    position = min(max(at - len(trace.prefix), 0), len(path) - 1)
    step = path[position]
    if step.distribution is None or STAGE not in step.distribution.processors:
        raise PlaygroundError("the effect of the bias at this step was not captured")
    tokens = (*trace.prompt_tokens, *trace.prefix, *(one.token for one in path[:position]))
    before = tuple(token.id for token in tokens)
    return _explained(model, config, step, step.distribution, before, len(trace.prefix) + position)


def _explained(
    model: Model,
    config: WatermarkingConfig,
    step: Step,
    given: Distribution,
    before: tuple[int, ...],
    at: int,
) -> GreenListStep:
    stage = given.processors.index(STAGE)
    vocabulary = int(model.module.config.get_text_config().vocab_size)
    size = int(vocabulary * config.greenlist_ratio)
    ids = [candidate.token.id for candidate in given.candidates]
    greens = _green(model, config, before, ids, vocabulary, size)
    choices = (
        Candidate(
            token=candidate.token.text,
            before=candidate.stages[stage - 1] if stage else candidate.raw or 0.0,
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
    """Whether each token is on the green list after the tokens ``before``."""
    width, selfhash = config.context_width, config.seeding_scheme == "selfhash"
    if len(before) < width:
        return [False] * len(ids)  # the processor does not change such a step
    scheme, key = config.seeding_scheme, config.hashing_key
    lists = green_lists(vocabulary, str(model.device), scheme, key, width)
    known = width - selfhash  # with selfhash the token itself is part of the context
    context = before[len(before) - known :] if known else ()
    draws = lists.draws([(*context, id) for id in ids], len(ids))
    return [draw.place < size for draw in draws]
