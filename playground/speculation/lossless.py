"""Whether drafting changed a greedy text: token by token, and why where it did.

Knows two traces of one prompt. Refuses to decide by a threshold somebody made up: what batched
arithmetic changes in log-probabilities is measured where the texts agree, and a difference is a
near tie only where the two best tokens are no further apart than a few times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import PlaygroundError
from engine.trace import Step, Token, Trace

TIMES = 8  # what gaps may be of the noise between two runs; it is a maximum over few places
RESOLUTION = 1e-4  # of gaps: a trace keeps candidates' probabilities in five digits


@dataclass(frozen=True)
class Choice:
    """What one run took at a place, how far its best two tokens were apart (in log-probability,
    which is the same as in logits), and what it gave both runs' tokens; None: not recorded."""

    token: Token
    text: str
    gap: float | None
    own: float | None
    others: float | None


@dataclass(frozen=True)
class Pair:
    """One place in both texts; None where a text has ended."""

    position: int
    plain: Choice | None
    drafted: Choice | None

    @property
    def same(self) -> bool:
        """Whether both took the same token."""
        if self.plain is None or self.drafted is None:
            return False
        return self.plain.token.id == self.drafted.token.id


@dataclass(frozen=True)
class Lossless:
    """Both texts side by side up to where they part. ``noise`` is the greatest difference between
    the runs in the log-probability of one token in one place."""

    pairs: tuple[Pair, ...]
    noise: float

    @property
    def same(self) -> bool:
        """Whether the texts are equal."""
        return all(pair.same for pair in self.pairs)

    @property
    def first(self) -> Pair | None:
        """The first place at which they differ."""
        return next((pair for pair in self.pairs if not pair.same), None)

    @property
    def closest(self) -> Pair | None:
        """The place at which the plain run's best two tokens were closest: where arithmetic would
        break a tie first."""
        told = [pair for pair in self.pairs if pair.plain and pair.plain.gap is not None]
        return min(told, key=lambda pair: _gap(pair.plain), default=None)

    @property
    def near_tie(self) -> bool | None:
        """Whether the first difference is one that arithmetic explains; None without one."""
        if (pair := self.first) is None:
            return None
        gaps = [_gap(pair.plain), _gap(pair.drafted)]
        return max(gaps) <= TIMES * self.noise + RESOLUTION

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        if (pair := self.first) is None:
            return f"All {len(self.pairs)} tokens are the same."
        if pair.plain is None or pair.drafted is None:
            return f"One text ends before token {pair.position + 1}, the other goes on."
        gaps = " and ".join(
            "unknown" if each.gap is None else f"{each.gap:.2g}"
            for each in (pair.plain, pair.drafted)
        )
        if self.near_tie:
            why = "a near tie, which batched arithmetic decides one way or the other"
        else:
            why = "too far apart for arithmetic to explain: this would be a bug"
        return (
            f"The texts part at token {pair.position + 1}: {pair.plain.token.text!r} against"
            f" {pair.drafted.token.text!r}. The best two tokens are {gaps} apart in log-probability"
            f" where the runs differ by up to {self.noise:.2g}: {why}."
        )


def check(plain: Trace, drafted: Trace) -> Lossless:
    """Hold a greedy run with drafts against plain greedy decoding of the same prompt."""
    if _ids(plain.prompt_tokens) != _ids(drafted.prompt_tokens) or plain.prefix != drafted.prefix:
        raise PlaygroundError("the runs have different prompts, so there is nothing to compare")
    if plain.settings.get("do_sample") or drafted.settings.get("do_sample"):
        raise PlaygroundError(
            "what is drawn differs from run to run; its distribution is tested instead"
        )
    one, other = _path(plain), _path(drafted)
    pairs: list[Pair] = []
    noise = 0.0
    for position in range(max(len(one), len(other))):
        ours = one[position] if position < len(one) else None
        theirs = other[position] if position < len(other) else None
        noise = max(noise, _difference(ours, theirs))
        pairs.append(Pair(position, _choice(ours, theirs), _choice(theirs, ours)))
        if not pairs[-1].same:
            break
    return Lossless(tuple(pairs), noise)


def _path(trace: Trace) -> list[Step]:
    return [trace.steps[id] for id in trace.sequences[0].steps] if trace.sequences else []


def _ids(tokens: tuple[Token, ...]) -> list[int]:
    return [token.id for token in tokens]


def _choice(step: Step | None, other: Step | None) -> Choice | None:
    if step is None:
        return None
    finals = _finals(step)
    best = sorted(finals.values(), reverse=True)[:2]
    gap = math.log(best[0] / best[1]) if len(best) == 2 else None
    others = finals.get(other.token.id) if other else None
    return Choice(step.token, step.text, gap, finals.get(step.token.id), others)


def _finals(step: Step) -> dict[int, float]:
    """The probabilities the run chose by, of the tokens recorded and not cut."""
    candidates = step.distribution.candidates if step.distribution else ()
    return {one.token.id: one.final for one in candidates if one.final > 0}


def _difference(step: Step | None, other: Step | None) -> float:
    """How far two runs are apart in what they gave the token that both took."""
    if step is None or other is None or step.token.id != other.token.id:
        return 0.0
    return 0.0 if step.final is None or other.final is None else abs(step.final - other.final)


def _gap(choice: Choice | None) -> float:
    return math.inf if choice is None or choice.gap is None else choice.gap
