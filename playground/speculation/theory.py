"""What drafting should bring by theory, for what was measured.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding": where each
drafted token is kept with probability a, a round of g drafted tokens gives (1 - a^(g+1)) / (1 - a)
tokens, and where drafting one costs c times a step of the target, it is that over g c + 1 times as
fast. This takes a pass that judges g + 1 tokens to cost what a pass of one does, which is nearly
so on a GPU and is not on a few CPU cores: there every further row costs something, which is
measured as well and gives a second curve. Knows formulas and traces. Refuses to run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from engine.errors import PlaygroundError
from engine.trace import Trace
from engine.trace.rounds import Round, arrivals, rounds
from playground.speculation.accounting import accounting

LONGEST = 16  # drafted tokens that curves go up to


@dataclass(frozen=True)
class Costs:
    """What was measured, in ms: a step of plain decoding, a drafted token, and a judging pass.

    ``row`` is what each further token in a judging pass costs, as a share of a plain step; ``rows``
    says how many tokens such passes had on average.
    """

    plain_ms: float
    draft_ms: float
    verify_ms: float
    rows: float
    row: float

    @property
    def ratio(self) -> float:
        """The c of the paper: a drafted token's time over a plain step's."""
        return self.draft_ms / self.plain_ms

    @property
    def verify(self) -> float:
        """A judging pass's time over a plain step's; the paper takes it for 1."""
        return self.verify_ms / self.plain_ms


@dataclass(frozen=True)
class Theory:
    """The speed-up by draft length 0, 1, 2 …: ``ideal`` as in the paper, ``here`` with what rows
    cost. ``length`` is this run's mean draft, ``measured`` its speed-up in tokens a second.

    Where ``tree`` is True several tokens were drafted for one place, all at once: the formula is
    about chains and says little.
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
        """The draft length that the paper's formula finds best; 0 is not to draft."""
        return _best(self.ideal)

    @property
    def best(self) -> int:
        """The best draft length where rows cost what they cost here; 0 is not to draft."""
        return _best(self.here)

    @property
    def expected_ideal(self) -> float:
        """What the paper's formula gives for this run's own mean draft length."""
        return speed_up(self.acceptance, self.length, self.costs.ratio)

    @property
    def expected(self) -> float:
        """The same with what rows cost here."""
        return speed_up(self.acceptance, self.length, self.costs.ratio, self.costs.row)


def expected_tokens(acceptance: float, length: float) -> float:
    """How many tokens a round of so many drafted ones gives on average."""
    if acceptance >= 1:
        return length + 1
    kept: float = acceptance ** (length + 1)
    return (1 - kept) / (1 - acceptance)


def speed_up(acceptance: float, length: float, cost_ratio: float, row: float = 0.0) -> float:
    """How many times as fast drafting is; ``row`` is what each drafted token adds to the pass that
    judges it."""
    return expected_tokens(acceptance, length) / (length * (cost_ratio + row) + 1)


def best_length(
    acceptance: float, cost_ratio: float, row: float = 0.0, longest: int = LONGEST
) -> int:
    """The draft length with the greatest speed-up; 0 where drafting does not pay."""
    return _best([speed_up(acceptance, length, cost_ratio, row) for length in range(longest + 1)])


def costs(plain: Trace, drafted: Trace) -> Costs:
    """What a plain run and one with drafts cost on the same machine."""
    steps = [tick.ms for tick in plain.ticks[1:] if tick.forward_passes]
    if not steps:
        raise PlaygroundError("the plain run is too short to tell what a step costs")
    told = [one for one in rounds(drafted) if one.drafted and one.target_passes]
    if not told:
        raise PlaygroundError("this run drafted nothing, so there is no cost to tell")
    usual = fmean(steps)
    return Costs(
        plain_ms=usual,
        draft_ms=sum(one.draft_ms for one in told) / sum(len(one.drafted) for one in told),
        verify_ms=fmean(one.verify_ms for one in told),
        rows=fmean(one.nodes for one in told),
        row=_row(told, usual),
    )


def theory(plain: Trace, drafted: Trace, longest: int = LONGEST) -> Theory:
    """What theory says of a run with drafts, held against a plain one of the same prompt."""
    measured, told = costs(plain, drafted), accounting(drafted)
    acceptance = told.acceptance or 0.0
    lengths = range(longest + 1)
    places = [[one.position for one in each.drafted] for each in rounds(drafted)]
    return Theory(
        acceptance=acceptance,
        costs=measured,
        length=told.mean_draft or 0.0,
        measured=_pace(plain) / _pace(drafted),
        ideal=tuple(speed_up(acceptance, at, measured.ratio) for at in lengths),
        here=tuple(speed_up(acceptance, at, measured.ratio, measured.row) for at in lengths),
        tree=any(len(set(positions)) < len(positions) for positions in places),
    )


def _row(told: Sequence[Round], usual: float) -> float:
    """The slope of judging time over further rows, through one plain step for one row."""
    further = [one.nodes - 1 for one in told]
    excess = [one.verify_ms / usual - 1 for one in told]
    weight = sum(rows * rows for rows in further)
    slope = sum(r * more for r, more in zip(further, excess, strict=True)) / weight if weight else 0
    return max(0.0, slope)


def _pace(trace: Trace) -> float:
    """Milliseconds a token."""
    there = arrivals(trace)
    if not there or there[-1] <= 0:
        raise PlaygroundError(f"the run of {trace.strategy} is too short to tell how fast it is")
    return there[-1] / len(there)


def _best(curve: Sequence[float]) -> int:
    return max(range(len(curve)), key=lambda length: curve[length])
