"""What a watermark scheme says of each token of a text.

Scores green lists; `engine.watermark.synthid` scores the other scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import WatermarkingConfig

from engine.models.model import Model
from engine.settings import Limits
from engine.watermark.detection import TokenVerdict, Verdict, Why
from engine.watermark.green_list import green_lists
from engine.watermark.statistics import Chance, Score, count


@dataclass(frozen=True)
class Judged:
    """A text's tokens, judged. ``coins`` are what chance tosses for a token, none where it is not
    scored: 1 or 0 for green and red, or its g-values; ``values`` are its parts in the score."""

    values: list[float]
    coins: list[tuple[int, ...]]
    why: list[Why]
    repeated: list[bool]  # whether its n-gram stood before
    redrawn: list[bool]  # whether its coins were tossed before: two n-grams may share them
    chance: Chance

    def scored(self, *, once: bool) -> list[int]:
        """Where the tokens stand that count; ``once``: not those whose n-gram stood before."""
        return [
            at for at, coins in enumerate(self.coins) if coins and not (once and self.repeated[at])
        ]

    def score(self, *, once: bool) -> Score:
        """What they add up to."""
        return self._sum(self.scored(once=once))

    def independent(self) -> Score:
        """What the tokens add up to of which none has the coins of another."""
        return self._sum(at for at in self.scored(once=False) if not self.redrawn[at])

    def _sum(self, counting: Iterable[int]) -> Score:
        places = list(counting)
        ones = sum(sum(self.coins[at]) for at in places)
        return count([self.values[at] for at in places], ones, self.chance)

    def verdicts(
        self, ids: Sequence[int], texts: Sequence[str], *, once: bool
    ) -> tuple[TokenVerdict, ...]:
        """Each token with what was made of it."""
        return tuple(self._verdict(at, ids[at], texts[at], once) for at in range(len(ids)))

    def _verdict(self, at: int, id: int, text: str, once: bool) -> TokenVerdict:
        coins = self.coins[at]
        if not coins:
            return TokenVerdict(id, text, "unscored", self.why[at])
        value, again = self.values[at], (self.repeated[at], self.redrawn[at])
        layers = coins if self.chance.layered else ()
        if once and self.repeated[at]:
            return TokenVerdict(id, text, "unscored", "repeated", value, *again, layers)
        colour: Verdict = "green" if value > self.chance.mean else "red"
        return TokenVerdict(id, text, colour, "", value, *again, layers)


def judge_green(
    model: Model, ids: Sequence[int], config: WatermarkingConfig, limits: Limits
) -> Judged:
    """Green or red, as `WatermarkDetector` tells them apart: the token that starts a text is not
    part of it, and the first ones have too little before them."""
    whole: Any = model.module.config
    vocabulary = int(whole.get_text_config().vocab_size)
    first = whole.decoder_start_token_id if model.is_encoder_decoder else whole.bos_token_id
    start = int(bool(ids) and ids[0] == first)
    body, selfhash = ids[start:], config.seeding_scheme == "selfhash"
    length = config.context_width + (not selfhash)
    # Even where a token seeds its own list, a whole context must stand there.
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
    return Judged(
        values=[0.0] * unscored + [float(one) for one in green],
        coins=[()] * unscored + [(int(one),) for one in green],
        why=why,
        repeated=[False] * unscored + seen_before(ngrams),
        redrawn=[False] * unscored + seen_before(draws),
        chance=Chance(ratio, ratio * (1 - ratio), size / vocabulary),
    )


def seen_before(ngrams: Iterable[tuple[int, ...]]) -> list[bool]:
    """Of each whether it stood in the text before."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(ngram, at) != at for at, ngram in enumerate(ngrams)]
