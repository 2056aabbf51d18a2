"""The diversity penalty of diverse beam search: what each group paid, and what it avoided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import (
    COLUMN,
    category_axis,
    color_axis,
    outline,
    panel_title,
    stacked_panels,
)
from visualizers.shared.runs import TokenTexts, labels, token_text, token_texts

_ROW = 48  # pixels
_LISTED = 6  # tokens of each kind in a hover text


class Kept(NamedTuple):
    """A beam that a group kept, and the penalty on its token."""

    token: str
    penalty: float


class Avoided(NamedTuple):
    """A token that the group would have kept without the penalty: ``total`` is the best score with
    it, penalty included."""

    token: str
    penalty: float
    total: float


class Cell(NamedTuple):
    """One group at one step. ``worst`` is the lowest score it kept: a token with a higher score
    before the penalty was avoided because of the penalty."""

    kept: tuple[Kept, ...]
    avoided: tuple[Avoided, ...]
    worst: float | None

    @property
    def paid(self) -> float:
        """The sum of the penalties on the tokens it kept."""
        return sum(beam.penalty for beam in self.kept)


class Search(NamedTuple):
    """One search: a row of cells per group, None once the group has finished."""

    label: str
    first: int  # position of the first token, from 1
    rows: tuple[tuple[Cell | None, ...], ...]


class Searches(NamedTuple):
    """What the figure shows; the highlighted position counts from 1."""

    searches: tuple[Search, ...]
    highlighted: int | None


def needs(trace: Trace) -> bool:
    """Whether the trace is of a search in groups of beams."""
    return any("group" in step.notes for step in trace.steps)


@view("diversity_penalty", title="Diversity penalty", tab="strategy", order=60, needs=needs)
def diversity_penalty(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Penalty on each group of beams for tokens that earlier groups chose at the same step. The
    number is the penalty on the tokens the group kept anyway; ✕ counts the tokens it avoided
    because of the penalty. The first group chooses freely.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Searches:
    named = zip(traces, labels(traces), strict=True)
    searches = tuple(_search(trace, label) for trace, label in named if needs(trace))
    return Searches(searches, None if at is None else at + 1)


def _search(trace: Trace, label: str) -> Search:
    by_cell: dict[tuple[int, int], list[Step]] = defaultdict(list)
    depth: dict[int | None, int] = {None: 0}
    for step in trace.steps:
        depth[step.id] = depth[step.parent] + 1
        by_cell[step.notes["group"], depth[step.id]].append(step)
    texts = token_texts(trace)
    longest = max(depth.values())
    return Search(
        label,
        len(trace.prefix) + 1,
        tuple(
            tuple(
                _cell(by_cell[group, length], texts) if (group, length) in by_cell else None
                for length in range(1, longest + 1)
            )
            for group in sorted({group for group, _ in by_cell})
        ),
    )


def _cell(steps: Sequence[Step], texts: TokenTexts) -> Cell:
    kept = [step for step in steps if step.event != "pruned"]
    totals = [step.notes["total"] for step in kept if step.notes["total"] is not None]
    worst = min(totals, default=None)
    penalized = next((step.notes["avoided"] for step in steps if "avoided" in step.notes), ())
    kept_ids = {step.token.id for step in kept}
    return Cell(
        tuple(Kept(step.token.text, step.notes["penalty"]) for step in kept),
        tuple(
            Avoided(token_text(token, texts), penalty, total)
            for token, penalty, total in penalized
            if token not in kept_ids and None not in (total, worst) and total + penalty > worst
        ),
        worst,
    )


def _figure(info: Searches) -> go.Figure:
    subtitle = "number: penalty paid · ✕: tokens avoided because of the penalty"
    heights = [_ROW * len(search.rows) for search in info.searches]
    figure = stacked_panels(subtitle, "token", "group", heights, bottom=130)
    longest = 1
    for row, search in enumerate(info.searches, start=1):
        figure.add_trace(_heatmap(search), row=row, col=1)
        last = search.first + len(search.rows[0]) - 1
        figure.update_xaxes(style.integer_axis(search.first, last), showgrid=False, row=row)
        names = [str(number) for number in range(1, len(search.rows) + 1)]
        figure.update_yaxes(category_axis(names), row=row)
        figure.update_yaxes(range=[len(names) - 0.5, -0.5], row=row)
        figure.add_annotation(panel_title(row, search.label))
        if info.highlighted is not None and search.first <= info.highlighted <= last:
            outline(figure, row, (info.highlighted - 0.5, info.highlighted + 0.5), None)
        longest = max(longest, len(search.rows[0]))
    figure.update_layout(
        coloraxis=color_axis("penalty paid", cmin=0),
        meta=style.min_width(150 + COLUMN * longest),
        showlegend=False,
    )
    return figure


def _heatmap(search: Search) -> go.Heatmap:
    return go.Heatmap(
        x=list(range(search.first, search.first + len(search.rows[0]))),
        y=list(range(len(search.rows))),
        z=[[cell and cell.paid for cell in row] for row in search.rows],
        text=[[cell and _cell_text(cell) for cell in row] for row in search.rows],
        texttemplate="%{text}",
        textfont={"size": 12},
        hovertext=[
            [cell and _hover(cell, group, search.first + index) for index, cell in enumerate(row)]
            for group, row in enumerate(search.rows, start=1)
        ],
        hoverinfo="text",
        hoverongaps=False,
        coloraxis="coloraxis",
        **{"xgap": 1, "ygap": 1},
    )


def _cell_text(cell: Cell) -> str:
    avoided = f"✕{len(cell.avoided)}" if cell.avoided else ""
    paid = f"{cell.paid:.3g}" if cell.paid or not avoided else ""
    return "<br>".join(filter(None, (paid, avoided)))


def _hover(cell: Cell, group: int, position: int) -> str:
    lines = [f"<b>group {group}</b>, token {position}", "kept:"]
    for beam in cell.kept[:_LISTED]:
        paid = f", penalty {beam.penalty:.3g}" if beam.penalty else ""
        lines.append(f"  <b>{style.token_label(beam.token)}</b>{paid}")
    if cell.avoided:
        lines.append("avoided because of the penalty:")
    for lost in cell.avoided[:_LISTED]:
        score = f"{lost.total + lost.penalty:.2f} − {lost.penalty:.3g} = {lost.total:.2f}"
        lines.append(
            f"  <b>{style.token_label(lost.token)}</b> {score} (worst kept: {cell.worst:.2f})"
        )
    return "<br>".join(lines)
