"""What groups of beams paid, or lost, for wanting the words of earlier groups.

Knows the groups and penalties diverse beam search noted. Refuses to know how groups are formed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.panels import (
    COLUMN,
    Words,
    headline,
    leveled,
    named,
    outlined,
    stacked,
    tinted,
)
from visualizers._shared.spellings import Spellings, called, spellings
from visualizers.registry import view

_ROW = 48  # pixels
_LISTED = 6  # tokens of a kind in a hover text


class Kept(NamedTuple):
    """A continuation a group went on with, and the penalty it paid."""

    token: str
    penalty: float


class Driven(NamedTuple):
    """A token the group would have gone on with but for the penalty: the best total with it, the
    penalty taken off."""

    token: str
    penalty: float
    total: float


class Cell(NamedTuple):
    """One group at one step: what it kept, and the tokens that the penalty drove away.

    ``worst`` is the lowest total that was kept: whoever had more without the penalty was driven
    away by it.
    """

    kept: tuple[Kept, ...]
    driven: tuple[Driven, ...]
    worst: float | None

    @property
    def paid(self) -> float:
        """What the continuations it kept paid in all."""
        return sum(one.penalty for one in self.kept)


class Groups(NamedTuple):
    """One search: a row of cells per group, None once a group is over."""

    label: str
    first: int
    rows: tuple[tuple[Cell | None, ...], ...]


class Diversity(NamedTuple):
    """What the figure shows; the place pointed out counts from 1."""

    searches: tuple[Groups, ...]
    pinned: int | None


def needs(trace: Trace) -> bool:
    """A trace of beams that searched in groups."""
    return any("group" in step.notes for step in trace.steps)


@view("diversity", title="Diversity penalty", order=60, tab="why", needs=needs)
def diversity(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """What each group of beams paid for wanting words that earlier groups took at the same step:
    the number is the penalty on the words it took all the same, and ✕ counts the words it would
    have taken but for the penalty. The first group chooses freely and never pays.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Diversity:
    named_ones = zip(traces, style.labels(traces), strict=True)
    searches = tuple(_groups(trace, label) for trace, label in named_ones if needs(trace))
    return Diversity(searches, None if at is None else at + 1)


def _groups(trace: Trace, label: str) -> Groups:
    told: dict[tuple[int, int], list[Step]] = defaultdict(list)
    depth: dict[int | None, int] = {None: 0}
    for step in trace.steps:
        depth[step.id] = depth[step.parent] + 1
        told[step.notes["group"], depth[step.id]].append(step)
    known = spellings(trace)
    longest = max(depth.values())
    return Groups(
        label,
        len(trace.prefix) + 1,
        tuple(
            tuple(
                _cell(told[group, at], known) if (group, at) in told else None
                for at in range(1, longest + 1)
            )
            for group in sorted({group for group, _ in told})
        ),
    )


def _cell(steps: Sequence[Step], known: Spellings) -> Cell:
    kept = [step for step in steps if step.event != "pruned"]
    totals = [step.notes["total"] for step in kept if step.notes["total"] is not None]
    worst = min(totals, default=None)
    avoided = next((step.notes["avoided"] for step in steps if "avoided" in step.notes), ())
    taken = {step.token.id for step in kept}
    return Cell(
        tuple(Kept(step.token.text, step.notes["penalty"]) for step in kept),
        tuple(
            Driven(called(token, known), penalty, total)
            for token, penalty, total in avoided
            if token not in taken and None not in (total, worst) and total + penalty > worst
        ),
        worst,
    )


def _figure(info: Diversity) -> go.Figure:
    words = Words(
        "Diversity penalty",
        "number: penalty paid · ✕: words the penalty drove away",
        "tokens written",
        "group",
    )
    figure = stacked(words, [_ROW * len(each.rows) for each in info.searches], bottom=130)
    longest = 1
    for row, each in enumerate(info.searches, start=1):
        figure.add_trace(_map(each), row=row, col=1)
        last = each.first + len(each.rows[0]) - 1
        figure.update_xaxes(style.counted(each.first, last), showgrid=False, row=row)
        names = [str(number) for number in range(1, len(each.rows) + 1)]
        figure.update_yaxes(leveled(names), row=row)
        figure.update_yaxes(range=[len(names) - 0.5, -0.5], row=row)
        figure.add_annotation(headline(named(each.label), row))
        if info.pinned is not None and each.first <= info.pinned <= last:
            outlined(figure, row, (info.pinned - 0.5, info.pinned + 0.5), None)
        longest = max(longest, len(each.rows[0]))
    figure.update_layout(
        coloraxis=tinted("penalty paid", cmin=0),
        meta=style.at_least(150 + COLUMN * longest),
        showlegend=False,
    )
    return figure


def _map(each: Groups) -> go.Heatmap:
    return go.Heatmap(
        x=list(range(each.first, each.first + len(each.rows[0]))),
        y=list(range(len(each.rows))),
        z=[[cell and cell.paid for cell in row] for row in each.rows],
        text=[[cell and _number(cell) for cell in row] for row in each.rows],
        texttemplate="%{text}",
        textfont={"size": 12},
        hovertext=[
            [cell and _hover(cell, group, each.first + at) for at, cell in enumerate(row)]
            for group, row in enumerate(each.rows, start=1)
        ],
        hoverinfo="text",
        hoverongaps=False,
        coloraxis="coloraxis",
        **{"xgap": 1, "ygap": 1},
    )


def _number(cell: Cell) -> str:
    driven = f"✕{len(cell.driven)}" if cell.driven else ""
    paid = f"{cell.paid:.3g}" if cell.paid or not driven else ""
    return "<br>".join(filter(None, (paid, driven)))


def _hover(cell: Cell, group: int, place: int) -> str:
    lines = [f"<b>group {group}</b>, token {place}", "kept:"]
    for one in cell.kept[:_LISTED]:
        paid = f", paid {one.penalty:.3g}" if one.penalty else ""
        lines.append(f"  <b>{style.spelled(one.token)}</b>{paid}")
    if cell.driven:
        lines.append("driven away by the penalty:")
    for lost in cell.driven[:_LISTED]:
        without = f"{lost.total + lost.penalty:.2f} − {lost.penalty:.3g} = {lost.total:.2f}"
        lines.append(
            f"  <b>{style.spelled(lost.token)}</b> {without} (worst kept: {cell.worst:.2f})"
        )
    return "<br>".join(lines)
