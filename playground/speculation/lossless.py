"""Checks that greedy decoding with drafts gives the same text as plain greedy decoding.

Batched arithmetic changes log-probabilities slightly. That noise is measured where the texts agree;
a difference counts as a near tie only if the two best tokens are no further apart than a few times
the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import PlaygroundError
from engine.trace import Step, Token, Trace

NOISE_FACTOR = 8  # a near tie is within this multiple of the noise, a maximum over few tokens
RESOLUTION = 1e-4  # of gaps: a trace keeps five digits of a candidate's probability


@dataclass(frozen=True)
class TokenChoice:
    """One run's token at a position, the gap between its two best tokens in log-probability, and
    its probabilities of both runs' tokens; None if not recorded."""

    token: Token
    text: str
    gap: float | None
    own: float | None
    others: float | None


@dataclass(frozen=True)
class Pair:
    """One position in both texts; None after the end of a text."""

    position: int
    plain: TokenChoice | None
    drafted: TokenChoice | None

    @property
    def same(self) -> bool:
        """Whether both runs chose the same token."""
        if self.plain is None or self.drafted is None:
            return False
        return self.plain.token.id == self.drafted.token.id


@dataclass(frozen=True)
class Lossless:
    """Both texts up to the first difference. ``noise`` is the greatest difference between the runs
    in the log-probability of the same token."""

    pairs: tuple[Pair, ...]
    noise: float

    @property
    def same(self) -> bool:
        """Whether the texts are equal."""
        return all(pair.same for pair in self.pairs)

    @property
    def first(self) -> Pair | None:
        """The first position at which the texts differ."""
        return next((pair for pair in self.pairs if not pair.same), None)

    @property
    def closest(self) -> Pair | None:
        """The position with the smallest gap between the plain run's two best tokens."""
        known = [pair for pair in self.pairs if pair.plain and pair.plain.gap is not None]
        return min(known, key=lambda pair: _gap(pair.plain), default=None)

    @property
    def near_tie(self) -> bool | None:
        """Whether rounding explains the first difference; None if there is none."""
        if (pair := self.first) is None:
            return None
        gaps = [_gap(pair.plain), _gap(pair.drafted)]
        return max(gaps) <= NOISE_FACTOR * self.noise + RESOLUTION

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if (pair := self.first) is None:
            return f"All {len(self.pairs)} tokens are the same."
        if pair.plain is None or pair.drafted is None:
            return f"One text ends before token {pair.position + 1}, the other continues."
        gaps = " and ".join(
            "unknown" if each.gap is None else f"{each.gap:.2g}"
            for each in (pair.plain, pair.drafted)
        )
        if self.near_tie:
            why = "a near tie, which rounding can decide either way"
        else:
            why = "too far apart for rounding errors: this would be a bug"
        return (
            f"The texts differ at token {pair.position + 1}: {pair.plain.token.text!r} and"
            f" {pair.drafted.token.text!r}. The two best tokens are {gaps} apart in"
            f" log-probability, and the runs differ by up to {self.noise:.2g}: {why}."
        )


def check(plain: Trace, drafted: Trace) -> Lossless:
    """Compare a greedy run with drafts to plain greedy decoding of the same prompt."""
    if _ids(plain.prompt_tokens) != _ids(drafted.prompt_tokens) or plain.prefix != drafted.prefix:
        raise PlaygroundError("the runs have different prompts and cannot be compared")
    if plain.settings.get("do_sample") or drafted.settings.get("do_sample"):
        raise PlaygroundError(
            "sampled texts differ from run to run; check their distribution instead"
        )
    plain_path, drafted_path = _path(plain), _path(drafted)
    pairs: list[Pair] = []
    noise = 0.0
    for position in range(max(len(plain_path), len(drafted_path))):
        first = plain_path[position] if position < len(plain_path) else None
        second = drafted_path[position] if position < len(drafted_path) else None
        noise = max(noise, _difference(first, second))
        pairs.append(Pair(position, _choice(first, second), _choice(second, first)))
        if not pairs[-1].same:
            break
    return Lossless(tuple(pairs), noise)


def _path(trace: Trace) -> list[Step]:
    return [trace.steps[id] for id in trace.sequences[0].steps] if trace.sequences else []


def _ids(tokens: tuple[Token, ...]) -> list[int]:
    return [token.id for token in tokens]


def _choice(step: Step | None, other: Step | None) -> TokenChoice | None:
    if step is None:
        return None
    finals = _finals(step)
    best = sorted(finals.values(), reverse=True)[:2]
    gap = math.log(best[0] / best[1]) if len(best) == 2 else None
    others = finals.get(other.token.id) if other else None
    return TokenChoice(step.token, step.text, gap, finals.get(step.token.id), others)


def _finals(step: Step) -> dict[int, float]:
    """The final probabilities of the recorded tokens that were not cut."""
    candidates = step.distribution.candidates if step.distribution else ()
    return {item.token.id: item.final for item in candidates if item.final > 0}


def _difference(step: Step | None, other: Step | None) -> float:
    """The difference in log-probability if both runs chose the same token."""
    if step is None or other is None or step.token.id != other.token.id:
        return 0.0
    return 0.0 if step.final is None or other.final is None else abs(step.final - other.final)


def _gap(choice: TokenChoice | None) -> float:
    return math.inf if choice is None or choice.gap is None else choice.gap
