"""Scores the tokens of a text by a green list; `engine.watermark.synthid` does so for SynthID."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import WatermarkingConfig

from engine.models.model import Model
from engine.settings import Limits
from engine.watermark.detection import TokenVerdict, Verdict, Why
from engine.watermark.green_list import green_lists
from engine.watermark.statistics import NullHypothesis, Score, score_values


@dataclass(frozen=True)
class ScoredText:
    """The tokens of a text with their scores.

    ``trials`` are a token's Bernoulli trials, empty if it is not scored: 1 or 0 for green and red,
    or its g-values. ``values`` are what each token adds to the score.
    """

    values: list[float]
    trials: list[tuple[int, ...]]
    why: list[Why]
    repeated: list[bool]  # whether its n-gram occurred before
    redrawn: list[bool]  # whether its trials were drawn before: two n-grams may share a seed
    null: NullHypothesis

    def scored(self, *, once: bool) -> list[int]:
        """The positions of the scored tokens; ``once``: without repeated n-grams."""
        return [
            at
            for at, trials in enumerate(self.trials)
            if trials and not (once and self.repeated[at])
        ]

    def score(self, *, once: bool) -> Score:
        """The score of the text."""
        return self._score(self.scored(once=once))

    def independent(self) -> Score:
        """The score of the tokens whose trials were drawn for the first time."""
        return self._score(at for at in self.scored(once=False) if not self.redrawn[at])

    def _score(self, positions: Iterable[int]) -> Score:
        scored = list(positions)
        ones = sum(sum(self.trials[at]) for at in scored)
        return score_values([self.values[at] for at in scored], ones, self.null)

    def verdicts(
        self, ids: Sequence[int], texts: Sequence[str], *, once: bool
    ) -> tuple[TokenVerdict, ...]:
        """The verdict on each token."""
        return tuple(self._verdict(at, ids[at], texts[at], once) for at in range(len(ids)))

    def _verdict(self, at: int, id: int, text: str, once: bool) -> TokenVerdict:
        trials = self.trials[at]
        if not trials:
            return TokenVerdict(id, text, "unscored", self.why[at])
        value, again = self.values[at], (self.repeated[at], self.redrawn[at])
        layers = trials if self.null.layered else ()
        if once and self.repeated[at]:
            return TokenVerdict(id, text, "unscored", "repeated", value, *again, layers)
        colour: Verdict = "green" if value > self.null.mean else "red"
        return TokenVerdict(id, text, colour, "", value, *again, layers)


def score_green_list(
    model: Model, ids: Sequence[int], config: WatermarkingConfig, limits: Limits
) -> ScoredText:
    """Score tokens as `WatermarkDetector` does: without the token that starts a text, and without
    the first tokens, whose context is incomplete."""
    whole: Any = model.module.config
    vocabulary = int(whole.get_text_config().vocab_size)
    first = whole.decoder_start_token_id if model.is_encoder_decoder else whole.bos_token_id
    start = int(bool(ids) and ids[0] == first)
    body, selfhash = ids[start:], config.seeding_scheme == "selfhash"
    length = config.context_width + (not selfhash)
    # A complete context is needed even where the token itself is part of the seed.
    ngrams = [*zip(*(body[at:] for at in range(length)), strict=False)]
    ngrams = ngrams if len(body) > config.context_width else []
    lists = green_lists(
        vocabulary,
        str(model.device),
        config.seeding_scheme,
        config.hashing_key,
        config.context_width,
    )
    size = int(vocabulary * config.greenlist_ratio)
    draws = lists.draws(ngrams, limits.green_lists)
    green = [draw.place < size for draw in draws]
    unscored = len(ids) - len(ngrams)
    why: list[Why] = ["bos"] * start
    why += ["context"] * (unscored - start)
    why += [""] * len(green)
    ratio = config.greenlist_ratio
    return ScoredText(
        values=[0.0] * unscored + [float(one) for one in green],
        trials=[()] * unscored + [(int(one),) for one in green],
        why=why,
        repeated=[False] * unscored + repeats(ngrams),
        redrawn=[False] * unscored + repeats(draws),
        null=NullHypothesis(ratio, ratio * (1 - ratio), size / vocabulary),
    )


def repeats(items: Iterable[tuple[int, ...]]) -> list[bool]:
    """For each item whether it occurred before."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(item, at) != at for at, item in enumerate(items)]
