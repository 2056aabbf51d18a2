"""The speed-up that theory predicts from measured acceptance and costs.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding": where each
drafted token is accepted with probability a, a round of g drafted tokens gives
(1 - a^(g+1)) / (1 - a) tokens on average. If drafting a token costs c times a step of the target,
the speed-up is that divided by g c + 1. The formula assumes that verifying g + 1 tokens costs as
much as one step, which is nearly true on a GPU but not on a few CPU cores: there every further row
has a cost, which is measured and gives a second curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from engine.errors import PlaygroundError
from engine.trace import Trace
from engine.trace.rounds import Round, arrivals, rounds
from playground.speculation.accounting import accounting

LONGEST = 16  # greatest draft length of the curves


@dataclass(frozen=True)
class Costs:
    """Measured costs in ms: a step of plain decoding, a drafted token, and a verification pass.

    ``row`` is the cost of each further token in a verification pass, as a share of a plain step;
    ``rows`` is the mean number of tokens in such a pass.
    """

    plain_ms: float
    draft_ms: float
    verify_ms: float
    rows: float
    row: float

    @property
    def ratio(self) -> float:
        """The time for a drafted token divided by that of a plain step (c in the paper)."""
        return self.draft_ms / self.plain_ms

    @property
    def verify(self) -> float:
        """The time for a verification pass divided by that of a plain step; 1 in the paper."""
        return self.verify_ms / self.plain_ms


@dataclass(frozen=True)
class Theory:
    """The speed-up by draft length 0, 1, 2, …: ``ideal`` as in the paper, ``here`` with the
    measured cost of rows. ``length`` is this run's mean draft length, ``measured`` its speed-up.

    If ``tree`` is True, several tokens were drafted for one position; the formula describes chains
    and is only a rough guide.
    """

    acceptance: float
    costs: Costs
    length: float
    measured: float
    ideal: tuple[float, ...]
    here: tuple[float, ...]
    tree: bool

    @property
    def best_ideal(self) -> int:
        """The best draft length by the paper's formula; 0 means no drafting."""
        return _best(self.ideal)

    @property
    def best(self) -> int:
        """The best draft length with the measured cost of rows; 0 means no drafting."""
        return _best(self.here)

    @property
    def expected_ideal(self) -> float:
        """The paper's formula at this run's mean draft length."""
        return speed_up(self.acceptance, self.length, self.costs.ratio)

    @property
    def expected(self) -> float:
        """The formula with the measured cost of rows at this run's mean draft length."""
        return speed_up(self.acceptance, self.length, self.costs.ratio, self.costs.row)


def expected_tokens(acceptance: float, length: float) -> float:
    """The mean number of tokens from a round with ``length`` drafted tokens."""
    if acceptance >= 1:
        return length + 1
    kept: float = acceptance ** (length + 1)
    return (1 - kept) / (1 - acceptance)


def speed_up(acceptance: float, length: float, cost_ratio: float, row: float = 0.0) -> float:
    """The speed-up over plain decoding; ``row`` is the cost that each drafted token adds to the
    verification pass."""
    return expected_tokens(acceptance, length) / (length * (cost_ratio + row) + 1)


def best_length(
    acceptance: float, cost_ratio: float, row: float = 0.0, longest: int = LONGEST
) -> int:
    """The draft length with the greatest speed-up; 0 if drafting does not pay."""
    return _best([speed_up(acceptance, length, cost_ratio, row) for length in range(longest + 1)])


def costs(plain: Trace, drafted: Trace) -> Costs:
    """The costs of a plain run and of one with drafts on the same machine."""
    steps = [tick.ms for tick in plain.ticks[1:] if tick.forward_passes]
    if not steps:
        raise PlaygroundError("the plain run is too short to measure a step")
    drafting = [
        (one, one.verify_ms)
        for one in rounds(drafted)
        if one.drafted and one.target_passes and one.verify_ms is not None
    ]
    if not drafting:
        raise PlaygroundError("this run drafted nothing, so there is no cost to measure")
    step_ms = fmean(steps)
    return Costs(
        plain_ms=step_ms,
        draft_ms=sum(one.draft_ms for one, _ in drafting)
        / sum(len(one.drafted) for one, _ in drafting),
        verify_ms=fmean(ms for _, ms in drafting),
        rows=fmean(one.nodes for one, _ in drafting),
        row=_row(drafting, step_ms),
    )


def theory(plain: Trace, drafted: Trace, longest: int = LONGEST) -> Theory:
    """The prediction for a run with drafts, given a plain run of the same prompt."""
    measured, counts = costs(plain, drafted), accounting(drafted)
    acceptance = counts.acceptance or 0.0
    lengths = range(longest + 1)
    places = [[one.position for one in each.drafted] for each in rounds(drafted)]
    return Theory(
        acceptance=acceptance,
        costs=measured,
        length=counts.mean_draft or 0.0,
        measured=_ms_per_token(plain) / _ms_per_token(drafted),
        ideal=tuple(speed_up(acceptance, at, measured.ratio) for at in lengths),
        here=tuple(speed_up(acceptance, at, measured.ratio, measured.row) for at in lengths),
        tree=any(len(set(positions)) < len(positions) for positions in places),
    )


def _row(drafting: Sequence[tuple[Round, float]], step_ms: float) -> float:
    """The slope of the verification time over further rows, through one plain step at one row."""
    further = [one.nodes - 1 for one, _ in drafting]
    excess = [ms / step_ms - 1 for _, ms in drafting]
    weight = sum(rows * rows for rows in further)
    slope = sum(r * more for r, more in zip(further, excess, strict=True)) / weight if weight else 0
    return max(0.0, slope)


def _ms_per_token(trace: Trace) -> float:
    """Milliseconds per token."""
    there = arrivals(trace)
    if not there or there[-1] <= 0:
        raise PlaygroundError(f"the run of {trace.strategy} is too short to measure its speed")
    return there[-1] / len(there)


def _best(curve: Sequence[float]) -> int:
    return max(range(len(curve)), key=lambda length: curve[length])
