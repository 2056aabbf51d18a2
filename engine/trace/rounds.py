"""The rounds of a speculative run, read off its trace: what was drafted, what became of it, when.

Reads the notes that speculative strategies leave on their steps, for chains and for trees of
drafted tokens. Standard library only.
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
    """One drafted token.

    ``p`` is the target's probability for it and ``q`` the drafter's, if it has one; ``draw`` is the
    random number that decided. ``position`` counts from 1 in the draft; in a tree, all tokens of
    one depth share it. ``entropy`` is the target's there, in nats. Tokens of an interrupted round
    count as ignored.
    """

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
    def verified(self) -> bool:
        """Whether the target accepted or rejected it."""
        return self.verdict in (ACCEPTED, REJECTED)

    @property
    def acceptance_probability(self) -> float | None:
        """The token is accepted if the draw is below this: p / q, at most 1."""
        if self.p is None or not self.q:
            return None
        return min(1.0, self.p / self.q)


@dataclass(frozen=True)
class Closing:
    """The token that the target added to a round: ``resampled`` after a rejection, ``bonus`` after
    a draft that was accepted whole, ``chosen`` where nothing was drafted."""

    step: int
    token: Token
    text: str
    kind: str
    entropy: float | None = None


@dataclass(frozen=True)
class Round:
    """One round: a draft, its verification, and the token that closes it. ``closing`` is None where
    the text ended inside the draft or the run was stopped.

    Times are measured in the run; ``began_ms`` and ``ended_ms`` count from the moment the prompt
    was read. ``verify_ms`` is the time from the start of the verification to its verdict: a GPU may
    draft the next round meanwhile. It is None where draft heads ran in the same tick and the trace
    does not say when the verdict was known. ``nodes`` counts the tokens that the target evaluated.
    """

    number: int
    drafted: tuple[Drafted, ...]
    closing: Closing | None
    began_ms: float
    ended_ms: float
    draft_ms: float
    verify_ms: float | None
    draft_passes: int
    target_passes: int
    nodes: int

    @property
    def accepted(self) -> tuple[Drafted, ...]:
        """The drafted tokens that were accepted."""
        return tuple(one for one in self.drafted if one.verdict == ACCEPTED)

    @property
    def tokens(self) -> int:
        """How many tokens the round added to the text."""
        return len(self.accepted) + (self.closing is not None)

    @property
    def verified(self) -> frozenset[int]:
        """The positions at which the target accepted or rejected a token."""
        return frozenset(one.position for one in self.drafted if one.verified)


@dataclass(frozen=True)
class Share:
    """How many tokens were accepted of those that were verified."""

    accepted: int
    verified: int

    @property
    def rate(self) -> float | None:
        """The share; None where nothing was verified."""
        return self.accepted / self.verified if self.verified else None


def rounds(trace: Trace) -> tuple[Round, ...]:
    """The rounds of a run, in order; none for a run that drafts nothing."""
    by_number: dict[int, list[Step]] = defaultdict(list)
    for step in trace.steps:
        if "round" in step.notes:
            by_number[step.notes["round"]].append(step)
    heads_ms = {number: _heads_ms(steps) for number, steps in by_number.items()}
    found: list[Round] = []
    first, clock = 1, 0.0  # the first tick is the prompt's
    for number in sorted(by_number):
        steps = by_number[number]
        end = max(first, max(step.tick for step in steps) + 1)
        ticks = trace.ticks[first:end]
        # Draft heads run at the end of a tick, once its round is decided.
        shared = bool(heads_ms.get(number + 1))
        found.append(_round(number, steps, ticks, clock, heads_ms[number], shared))
        first, clock = end, clock + sum(tick.ms for tick in ticks)
    return tuple(found)


def needs(trace: Trace) -> bool:
    """Whether a run drafted anything."""
    return any(step.notes.get("verdict") in VERDICTS for step in trace.steps)


def by_position(rounds: Iterable[Round]) -> tuple[Share, ...]:
    """The acceptance rate of the first, second, third … drafted token. A later one is only verified
    where all before it were accepted."""
    verified: dict[int, int] = defaultdict(int)
    accepted: dict[int, int] = defaultdict(int)
    for one in rounds:
        for position in one.verified:
            verified[position] += 1
        for position in {drafted.position for drafted in one.accepted}:
            accepted[position] += 1
    last = max(verified, default=0)
    return tuple(Share(accepted[at], verified[at]) for at in range(1, last + 1))


def prompt_ms(trace: Trace) -> float:
    """The time it took to evaluate the prompt; 0 where it was cached."""
    first = trace.ticks[:1]
    return sum(tick.ms for tick in first if tick.forward_passes or tick.draft_passes)


def arrivals(trace: Trace) -> tuple[float, ...]:
    """When each token of the best text was known, in ms since the prompt was read. Tokens of one
    round arrive together."""
    if not trace.sequences:
        return ()
    clock, ends = -prompt_ms(trace), []
    for tick in trace.ticks:
        clock += tick.ms
        ends.append(clock)
    return tuple(ends[trace.steps[id].tick] for id in trace.sequences[0].steps)


def _heads_ms(steps: Sequence[Step]) -> float:
    """How long draft heads took for a round; the passes of a draft model have their own ticks."""
    return sum(float(step.notes.get("draft_ms", 0.0)) for step in steps)


def _round(
    number: int,
    steps: Sequence[Step],
    ticks: Sequence[Tick],
    clock: float,
    heads_ms: float,
    shared: bool,
) -> Round:
    """A round whose first tick began at ``clock``; ``shared``: the next round's draft heads ran in
    its last tick."""
    drafting = [tick for tick in ticks if tick.draft_passes and not tick.forward_passes]
    verifying = [tick for tick in ticks if tick.forward_passes or not tick.draft_passes]
    *before, last = [tick.ms for tick in verifying] or [0.0]
    decided = verifying[-1].decided_ms if verifying and shared else last
    elapsed = sum(tick.ms for tick in ticks)
    return Round(
        number=number,
        drafted=_drafted(steps),
        closing=_closing(steps),
        began_ms=clock - heads_ms if ticks else clock,
        ended_ms=clock + elapsed - (0.0 if decided is None else last - decided),
        draft_ms=sum(tick.ms for tick in drafting) + heads_ms,
        verify_ms=None if decided is None else sum(before) + decided,
        draft_passes=sum(tick.draft_passes for tick in ticks),
        target_passes=sum(tick.forward_passes for tick in ticks),
        nodes=sum(tick.nodes for tick in verifying),
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
