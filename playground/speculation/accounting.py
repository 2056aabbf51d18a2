"""Counts the drafted tokens and forward passes of a run, and checks that the sums agree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from engine.trace import Trace
from engine.trace.rounds import (
    ACCEPTED,
    BONUS,
    IGNORED,
    PLAIN,
    REJECTED,
    RESAMPLED,
    Share,
    by_position,
    rounds,
)


@dataclass(frozen=True)
class Accounting:
    """The counts of one run.

    ``target_passes`` include one for the prompt, even if it was in the cache, so that plain
    decoding has one pass per token. ``draft_passes`` exclude those for the prompt.
    """

    rounds: int
    drafted: int
    accepted: int
    rejected: int
    ignored: int
    resampled: int
    bonus: int
    plain: int  # tokens of rounds without drafts
    tokens: int  # of the returned text
    target_passes: int
    draft_passes: int
    positions: tuple[Share, ...]  # acceptance of the first, second, … drafted token

    @property
    def compression(self) -> float | None:
        """Tokens per forward pass of the target; 1 for plain decoding."""
        return self.tokens / self.target_passes if self.target_passes else None

    @property
    def passes_saved(self) -> int:
        """How many fewer passes of the target than plain decoding needs."""
        return self.tokens - self.target_passes

    @property
    def acceptance(self) -> float | None:
        """The acceptance rate (alpha of Leviathan et al.). The tokens that a tree drafts for one
        position count as one, since at most one of them is accepted."""
        verified = sum(share.verified for share in self.positions)
        return self.accepted / verified if verified else None

    @property
    def mean_draft(self) -> float | None:
        """The mean number of drafted tokens in rounds with drafts."""
        drafting = self.rounds - self.plain_rounds
        return self.drafted / drafting if drafting else None

    @property
    def plain_rounds(self) -> int:
        """The number of rounds without drafts."""
        return min(self.plain, self.rounds)

    @property
    def faults(self) -> tuple[str, ...]:
        """The sums that disagree, each as a sentence; empty if all agree."""
        with_verdict = self.accepted + self.rejected + self.ignored
        written = self.accepted + self.resampled + self.bonus + self.plain
        wrong = []
        if with_verdict != self.drafted:
            wrong.append(f"{self.drafted} tokens were drafted, but {with_verdict} have a verdict")
        if written != self.tokens:
            wrong.append(f"{self.tokens} tokens were returned, but {written} were generated")
        if sum(share.accepted for share in self.positions) != self.accepted:
            wrong.append(f"the positions do not sum to the {self.accepted} accepted tokens")
        return tuple(wrong)

    @property
    def adds_up(self) -> bool:
        """Whether all sums agree."""
        return not self.faults


def accounting(trace: Trace) -> Accounting:
    """Count a run; without drafts every token is ``plain``."""
    all_rounds = rounds(trace)
    verdicts = [one.verdict for one in chain.from_iterable(each.drafted for each in all_rounds)]
    closings = [each.closing.kind for each in all_rounds if each.closing]
    returned = trace.sequences[0].steps if trace.sequences else ()
    outside = sum("round" not in trace.steps[id].notes for id in returned)
    return Accounting(
        rounds=len(all_rounds),
        drafted=len(verdicts),
        accepted=verdicts.count(ACCEPTED),
        rejected=verdicts.count(REJECTED),
        ignored=verdicts.count(IGNORED),
        resampled=closings.count(RESAMPLED),
        bonus=closings.count(BONUS),
        plain=closings.count(PLAIN) + outside,
        tokens=len(trace.sequences[0].token_ids) if trace.sequences else 0,
        # The first tick processes the prompt, or finds it in the cache.
        target_passes=bool(trace.ticks) + sum(tick.forward_passes for tick in trace.ticks[1:]),
        draft_passes=sum(tick.draft_passes for tick in trace.ticks[1:]),
        positions=by_position(all_rounds),
    )
