"""Finds where in a text a watermark is: the score over its length, and marked passages inside it.

P-values of passages are corrected for the number of windows that were tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.errors import PlaygroundError
from engine.watermark.detection import Detection
from engine.watermark.statistics import binomial_tail, normal_tail, z_score

# In scored tokens, each √2 times the one before, so that one of them is close to any passage.
WIDTHS = tuple(round(16 * 2 ** (step / 2)) for step in range(17))  # 16 to 4096


class AtLength(NamedTuple):
    """The score of a text up to and including the token at a position."""

    position: int
    tokens_scored: int
    green_tokens: int
    z_score: float


class Window(NamedTuple):
    """Tokens ``start`` to ``end`` (exclusive), and their z-score."""

    start: int
    end: int
    z_score: float


@dataclass(frozen=True)
class Passage:
    """Tokens ``start`` to ``end`` (exclusive), with the p-value of this window alone and the one
    corrected for all windows that were tested."""

    start: int
    end: int
    text: str
    tokens_scored: int
    green_tokens: int
    green_fraction: float
    z_score: float
    p_value: float
    corrected_p: float


@dataclass(frozen=True)
class Scan:
    """The most significant passage of a text; None where no token is scored."""

    best: Passage | None
    found: bool  # whether it is significant at the detection's threshold
    windows: int  # how many were tested
    widths: tuple[int, ...]
    correction: str = "Bonferroni"

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self) | {"widths": list(self.widths)}


def over_length(detection: Detection) -> tuple[AtLength, ...]:
    """The z-score after each scored token, with the detection's treatment of repeats."""
    points: list[AtLength] = []
    total, green = 0.0, 0
    for position, token in enumerate(detection.tokens):
        if token.verdict == "unscored" or token.value is None:
            continue
        total += token.value
        green += token.verdict == "green"
        scored = len(points) + 1
        z = z_score(total, scored, detection.chance)
        points.append(AtLength(position, scored, green, z))
    return tuple(points)


def slide(detection: Detection, width: int) -> tuple[Window, ...]:
    """The score of every window of ``width`` scored tokens; none if the text has fewer."""
    places, values = _first_draws(detection)
    _check([width])
    sums = _sums(values, width).tolist() if width <= len(places) else []
    return tuple(
        Window(places[at], places[at + width - 1] + 1, z_score(total, width, detection.chance))
        for at, total in enumerate(sums)
    )


def scan(detection: Detection, widths: Sequence[int] = WIDTHS) -> Scan:
    """Search a text for a marked passage with windows of several widths.

    Only first draws count: a repeated n-gram is no new evidence, and a refrain would look like a
    mark. P-values are exact (for SynthID, of the normal approximation) with a Bonferroni
    correction, which is conservative, because windows overlap.
    """
    _check(widths)
    places, values = _first_draws(detection)
    fitting = tuple(sorted({width for width in widths if width < len(places)} | {len(places)}))
    if not places:
        return Scan(None, False, 0, ())
    windows = sum(len(places) - width + 1 for width in fitting)
    tops = [(_sums(values, width).argmax().item(), width) for width in fitting]
    passages = [
        _passage(detection, places[int(at) : int(at) + width], windows) for at, width in tops
    ]
    # Of equally significant passages, the one with the highest z-score.
    best = min(passages, key=lambda passage: (passage.corrected_p, -passage.z_score))
    return Scan(best, best.corrected_p <= normal_tail(detection.z_threshold), windows, fitting)


def _first_draws(detection: Detection) -> tuple[list[int], Tensor]:
    """The positions of the tokens that were drawn for the first time, and their values."""
    tokens = detection.tokens
    places = [
        at for at, token in enumerate(tokens) if token.value is not None and not token.redrawn
    ]
    values = [tokens[at].value for at in places]
    return places, torch.tensor(values, dtype=torch.float64)


def _sums(values: Tensor, width: int) -> Tensor:
    totals = torch.cat([values.new_zeros(1), values.cumsum(0)])
    return totals[width:] - totals[:-width]


def _passage(detection: Detection, places: Sequence[int], windows: int) -> Passage:
    chance, width = detection.chance, len(places)
    values = [detection.tokens[at].value or 0.0 for at in places]
    green = sum(value > chance.mean for value in values)
    z = z_score(math.fsum(values), width, chance)
    p = normal_tail(z) if chance.layered else binomial_tail(green, width, chance.share)
    start, end = places[0], places[-1] + 1
    return Passage(
        start=start,
        end=end,
        text="".join(token.text for token in detection.tokens[start:end]),
        tokens_scored=width,
        green_tokens=green,
        green_fraction=green / width,
        z_score=z,
        p_value=p,
        corrected_p=min(1.0, p * windows),
    )


def _check(widths: Sequence[int]) -> None:
    for width in widths:
        if type(width) is not int or width < 1:
            raise PlaygroundError(f"the window width is {width!r}; it must be a positive integer")
