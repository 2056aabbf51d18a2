"""A trace read round by round: what was drafted, what became of it, and how long it took.

Knows the notes that speculative strategies leave on their steps, for chains of drafted tokens and
for trees of them. Refuses to know models, sums and figures. Standard library only, like the trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.trace import Step, Tick, Token, Trace

ACCEPTED, REJECTED, IGNORED = VERDICTS = ("accepted", "rejected", "ignored")
RESAMPLED, BONUS, PLAIN = CLOSINGS = ("resampled", "bonus", "chosen")


@dataclass(frozen=True)
class Drafted:
    """One drafted token. ``p`` is what the target gave it and ``q`` what the drafter did, where it
    says so; ``draw`` is the random number that decided. ``position`` counts from 1 in its draft;
    in a tree of drafts all tokens as far from its root share one. ``entropy`` is the target's own
    there, in nats. What nobody judged, because its round was broken off, counts as ignored."""

    step: int
    token: Token
    text: str
    position: int
    verdict: str
    p: float | None = None
    q: float | None = None
    draw: float | None = None
    entropy: float | None = None

    @property
    def judged(self) -> bool:
        """Whether the target decided about it."""
        return self.verdict in (ACCEPTED, REJECTED)

    @property
    def bar(self) -> float | None:
        """What the draw had to stay below for the token to be kept: p / q, at most 1."""
        if self.p is None or not self.q:
            return None
        return min(1.0, self.p / self.q)


@dataclass(frozen=True)
class Closing:
    """The token the target itself added to a round: ``resampled`` after a rejection, ``bonus``
    after a draft kept whole, ``chosen`` where nothing was drafted."""

    step: int
    token: Token
    text: str
    kind: str
    entropy: float | None = None


@dataclass(frozen=True)
class Round:
    """One round: a draft, its judgement, and the token that closes it; None where the text ended
    inside the draft, or somebody stopped the run.

    Times are of this run's ticks, ``began_ms`` on a clock that starts when the prompt was read.
    ``nodes`` counts the tokens that the target read to judge.
    """

    number: int
    drafted: tuple[Drafted, ...]
    closing: Closing | None
    began_ms: float
    draft_ms: float
    verify_ms: float
    draft_passes: int
    target_passes: int
    nodes: int

    @property
    def ended_ms(self) -> float:
        """When its tokens were there."""
        return self.began_ms + self.draft_ms + self.verify_ms

    @property
    def accepted(self) -> tuple[Drafted, ...]:
        """The drafted tokens that were kept."""
        return tuple(one for one in self.drafted if one.verdict == ACCEPTED)

    @property
    def tokens(self) -> int:
        """How many tokens of the text the round gave."""
        return len(self.accepted) + (self.closing is not None)

    @property
    def judged(self) -> frozenset[int]:
        """The positions at which the target decided."""
        return frozenset(one.position for one in self.drafted if one.judged)


@dataclass(frozen=True)
class Share:
    """How often something was kept of the times it was judged."""

    accepted: int
    judged: int

    @property
    def rate(self) -> float | None:
        """The share; None where nothing was judged."""
        return self.accepted / self.judged if self.judged else None


def rounds(trace: Trace) -> tuple[Round, ...]:
    """The rounds of a run, in order; none of a run that drafts nothing."""
    by_number: dict[int, list[Step]] = defaultdict(list)
    for step in trace.steps:
        if "round" in step.notes:
            by_number[step.notes["round"]].append(step)
    numbers = sorted(by_number)
    inside = {number: _inside(by_number[number]) for number in numbers}
    found: list[Round] = []
    spent, clock = 1, 0.0  # the first tick is the prompt's
    for place, number in enumerate(numbers):
        steps = by_number[number]
        until = max(spent, max(step.tick for step in steps) + 1)
        ticks = trace.ticks[spent:until]
        following = numbers[place + 1 : place + 2]
        # The heads of the next round ran in this one's last tick, once its verdict was known.
        borrowed = sum(inside[next] for next in following) if ticks else 0.0
        found.append(_round(number, steps, ticks, clock, inside[number], borrowed))
        spent, clock = until, found[-1].ended_ms
    return tuple(found)


def needs(trace: Trace) -> bool:
    """Whether a run drafted anything."""
    return any(step.notes.get("verdict") in VERDICTS for step in trace.steps)


def by_position(told: Iterable[Round]) -> tuple[Share, ...]:
    """How often the first, the second, the third … drafted token was kept of the times one was
    judged there: a later one is judged only where all before it were kept."""
    judged: dict[int, int] = defaultdict(int)
    accepted: dict[int, int] = defaultdict(int)
    for one in told:
        for position in one.judged:
            judged[position] += 1
        for position in {drafted.position for drafted in one.accepted}:
            accepted[position] += 1
    last = max(judged, default=0)
    return tuple(Share(accepted[at], judged[at]) for at in range(1, last + 1))


def prompt_ms(trace: Trace) -> float:
    """What reading the prompt took: nothing where it was known from a run before."""
    first = trace.ticks[:1]
    return sum(tick.ms for tick in first if tick.forward_passes or tick.draft_passes)


def arrivals(trace: Trace) -> tuple[float, ...]:
    """When each token of the best text was there, in ms since the prompt was read: tokens of one
    round arrive together."""
    if not trace.sequences:
        return ()
    clock, ends = -prompt_ms(trace), []
    for tick in trace.ticks:
        clock += tick.ms
        ends.append(clock)
    return tuple(ends[trace.steps[id].tick] for id in trace.sequences[0].steps)


def _inside(steps: Sequence[Step]) -> float:
    """How long drafting took inside the strategy, where no pass of a draft model tells it."""
    return sum(float(step.notes.get("draft_ms", 0.0)) for step in steps)


def _round(
    number: int,
    steps: Sequence[Step],
    ticks: Sequence[Tick],
    began: float,
    inside: float,
    borrowed: float,
) -> Round:
    drafting = [tick for tick in ticks if tick.draft_passes and not tick.forward_passes]
    judging = [tick for tick in ticks if tick.forward_passes or not tick.draft_passes]
    verify = sum(tick.ms for tick in judging) - borrowed
    return Round(
        number=number,
        drafted=_drafted(steps),
        closing=_closing(steps),
        began_ms=began,
        draft_ms=sum(tick.ms for tick in drafting) + inside,
        verify_ms=max(0.0, verify),
        draft_passes=sum(tick.draft_passes for tick in ticks),
        target_passes=sum(tick.forward_passes for tick in ticks),
        nodes=sum(tick.nodes for tick in judging),
    )


def _drafted(steps: Sequence[Step]) -> tuple[Drafted, ...]:
    positions: dict[int, int] = {}
    found = []
    for step in steps:
        if step.notes.get("verdict") in CLOSINGS:
            continue
        above = 0 if step.parent is None else positions.get(step.parent, 0)
        positions[step.id] = above + 1
        found.append(_one(step, above + 1))
    return tuple(found)


def _one(step: Step, position: int) -> Drafted:
    verdict = step.notes.get("verdict", IGNORED)
    entropy = step.distribution.raw_entropy if step.distribution and "p" in step.notes else None
    p, q, draw = (step.notes.get(name) for name in ("p", "q", "draw"))
    return Drafted(step.id, step.token, step.text, position, verdict, p, q, draw, entropy)


def _closing(steps: Sequence[Step]) -> Closing | None:
    for step in steps:
        if (kind := step.notes.get("verdict")) in CLOSINGS:
            entropy = step.distribution.raw_entropy if step.distribution else None
            return Closing(step.id, step.token, step.text, kind, entropy)
    return None
