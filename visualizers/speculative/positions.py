"""How often drafted tokens are kept, by how far into their draft they stand.

Knows rounds as a trace tells them. Refuses to count a token that nobody judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Share, by_position, needs, rounds
from visualizers._shared import style as style
from visualizers.registry import view


class Line(NamedTuple):
    """One run; its place in the comparison gives it colour and mark."""

    place: int
    label: str
    shares: tuple[Share, ...]


class Positions(NamedTuple):
    """What the figure shows."""

    lines: tuple[Line, ...]

    @property
    def longest(self) -> int:
        """The furthest place at which something was judged."""
        return max((len(line.shares) for line in self.lines), default=1)


@view("speculative_positions", title="Drafts: kept by place", order=71, tab="why", needs=needs)
def speculative_positions(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How often the first, second, third drafted token of a round was kept, of the times the model
    judged one there: it judges a later one only where it kept all before it.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Positions:
    named = enumerate(zip(traces, style.labels(traces), strict=True))
    return Positions(
        tuple(
            Line(place, label, by_position(rounds(trace)))
            for place, (trace, label) in named
            if needs(trace)
        )
    )


def _figure(info: Positions) -> go.Figure:
    words = ("Drafts: kept by place", "of the drafted tokens that were judged there")
    figure = style.blank(*words, "place in the draft", "kept")
    for line in info.lines:
        figure.add_trace(_line(line))
    figure.update_xaxes(style.counted(1, info.longest))
    figure.update_yaxes(range=[-0.04, 1.04], tickformat=".0%")
    figure.update_layout(height=420, meta=style.at_least(240 + 24 * min(info.longest, 32)))
    return figure


def _line(line: Line) -> go.Scatter:
    mark = style.trace_mark(line.place)
    places = range(1, len(line.shares) + 1)
    return go.Scatter(
        x=list(places),
        y=[share.rate for share in line.shares],
        hovertext=[
            f"place {place}: {share.accepted} of {share.judged} kept<br>{style.escape(line.label)}"
            for place, share in zip(places, line.shares, strict=True)
        ],
        hoverinfo="text",
        mode="lines+markers",
        line={"color": mark.colour, "width": 2},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size + 2},
        name=style.escape(line.label),
        cliponaxis=False,
        showlegend=True,
    )
