"""What target and drafter thought of each drafted token, and the draw that decided.

Knows p, q and draws as a trace tells them. Refuses to know a rule: where a draw stands is drawn
from what was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import VERDICTS, Drafted, rounds
from visualizers._shared import style as style
from visualizers.registry import view
from visualizers.speculative._verdicts import MARKS, drafted_card


class Dot(NamedTuple):
    """One drafted token; ``least`` is the p that its draw asked for, where one was made."""

    p: float
    q: float
    verdict: str
    least: float | None
    card: str


class Weighed(NamedTuple):
    """What the figure shows."""

    dots: tuple[Dot, ...]


def needs(trace: Trace) -> bool:
    """A run whose drafter says how probable it found its tokens."""
    return any("p" in step.notes and "q" in step.notes for step in trace.steps)


@view("speculative_p_q", title="Drafts: p against q", order=70, tab="why", needs=needs)
def speculative_p_q(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Each drafted token by how probable its drafter (q) and the model (p) found it. Where tokens
    are drawn, one above the dashed line is always kept, and below it a draw decides: the thin line
    reaches to the p which that draw asked for.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Weighed:
    return Weighed(
        tuple(
            Dot(one.p, one.q, one.verdict, _least(one), drafted_card(one, each.number, label))
            for trace, label in zip(traces, style.labels(traces), strict=True)
            if needs(trace)
            for each in rounds(trace)
            for one in each.drafted
            if one.p is not None and one.q is not None
        )
    )


def _least(one: Drafted) -> float | None:
    """A token is kept where the draw is below p / q, so where p is above the draw times q."""
    return None if one.draw is None or one.q is None else one.draw * one.q


def _figure(info: Weighed) -> go.Figure:
    words = ("Drafts: p against q", "dashed: p = q · thin lines: to the p that the draw asked for")
    figure = style.blank(*words, "q, by the drafter", "p, by the model")
    figure.update_layout(height=560, meta=style.at_least(360))
    axis = {"range": [-0.03, 1.03], "tickformat": ".0%"}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    if not info.dots:
        return figure
    figure.add_shape(
        type="line",
        **{"x0": 0, "y0": 0, "x1": 1, "y1": 1},
        line={"color": style.INK, "width": 1.5, "dash": "dash"},
    )
    if decided := [dot for dot in info.dots if dot.least is not None]:
        figure.add_trace(_stems(decided))
    for verdict in VERDICTS:
        if dots := [dot for dot in info.dots if dot.verdict == verdict]:
            figure.add_trace(_marks(dots, verdict))
    return figure


def _stems(dots: Sequence[Dot]) -> go.Scatter:
    return go.Scatter(
        x=[x for dot in dots for x in (dot.q, dot.q, None)],
        y=[y for dot in dots for y in (dot.p, dot.least, None)],
        mode="lines",
        line={"color": style.QUIET, "width": 1.5},
        hoverinfo="skip",
        name="to the p the draw asked for",
    )


def _marks(dots: Sequence[Dot], verdict: str) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[dot.q for dot in dots],
        y=[dot.p for dot in dots],
        hovertext=[dot.card for dot in dots],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size, "opacity": 0.85},
        name=f"{verdict} ({len(dots)})",
        cliponaxis=False,
        showlegend=True,
    )
