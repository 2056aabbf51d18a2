"""The ledger of a speculative run: everything that was drafted, passed or written, once.

Knows one trace, and checks that its sums agree with each other and with the text returned. Refuses
to know models and clocks.
"""

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
    """What a run drafted and what that came to.

    ``target_passes`` are those of the model itself, one for the prompt included, whether or not it
    was known before: so plain decoding makes one for each token. ``draft_passes`` are counted from
    the prompt on.
    """

    rounds: int
    drafted: int
    accepted: int
    rejected: int
    ignored: int
    resampled: int
    bonus: int
    plain: int  # tokens of the target where nothing was drafted
    tokens: int  # of the text returned
    target_passes: int
    draft_passes: int
    positions: tuple[Share, ...]  # of the first, second … token of drafts

    @property
    def compression(self) -> float | None:
        """Tokens for each pass of the target; plain decoding has 1."""
        return self.tokens / self.target_passes if self.target_passes else None

    @property
    def passes_saved(self) -> int:
        """Passes of the target that plain decoding would have made and this run did not."""
        return self.tokens - self.target_passes

    @property
    def acceptance(self) -> float | None:
        """The alpha of Leviathan et al.: kept of the times one was judged. Of a tree's tokens for
        one place at most one is kept, and they count as judged once."""
        judged = sum(share.judged for share in self.positions)
        return self.accepted / judged if judged else None

    @property
    def mean_draft(self) -> float | None:
        """How many tokens a round drafted on average, of those that drafted any."""
        drafting = self.rounds - self.plain_rounds
        return self.drafted / drafting if drafting else None

    @property
    def plain_rounds(self) -> int:
        """Rounds in which nothing was drafted."""
        return min(self.plain, self.rounds)

    @property
    def faults(self) -> tuple[str, ...]:
        """What does not add up, as sentences; nothing does not."""
        judged = self.accepted + self.rejected + self.ignored
        written = self.accepted + self.resampled + self.bonus + self.plain
        wrong = []
        if judged != self.drafted:
            wrong.append(f"{self.drafted} tokens were drafted, and verdicts are {judged}")
        if written != self.tokens:
            wrong.append(f"{self.tokens} tokens were returned, and {written} were written")
        if sum(share.accepted for share in self.positions) != self.accepted:
            wrong.append(f"the positions' tokens are not the {self.accepted} accepted ones")
        return tuple(wrong)

    @property
    def adds_up(self) -> bool:
        """Whether every sum agrees."""
        return not self.faults


def accounting(trace: Trace) -> Accounting:
    """The ledger of a run; of one that drafts nothing every token is plain."""
    told = rounds(trace)
    verdicts = [one.verdict for one in chain.from_iterable(each.drafted for each in told)]
    closings = [each.closing.kind for each in told if each.closing]
    returned = trace.sequences[0].steps if trace.sequences else ()
    unrounded = sum("round" not in trace.steps[id].notes for id in returned)
    return Accounting(
        rounds=len(told),
        drafted=len(verdicts),
        accepted=verdicts.count(ACCEPTED),
        rejected=verdicts.count(REJECTED),
        ignored=verdicts.count(IGNORED),
        resampled=closings.count(RESAMPLED),
        bonus=closings.count(BONUS),
        plain=closings.count(PLAIN) + unrounded,
        tokens=len(trace.sequences[0].token_ids) if trace.sequences else 0,
        # The first tick reads the prompt, or finds it known.
        target_passes=bool(trace.ticks) + sum(tick.forward_passes for tick in trace.ticks[1:]),
        draft_passes=sum(tick.draft_passes for tick in trace.ticks[1:]),
        positions=by_position(told),
    )
