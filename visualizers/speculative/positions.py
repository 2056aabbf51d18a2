"""Acceptance of drafted tokens by their position in the draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Share, by_position, needs, rounds
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import labels


class Line(NamedTuple):
    """One run; its number in the comparison gives it colour and marker."""

    run: int
    label: str
    shares: tuple[Share, ...]


class AcceptanceByPosition(NamedTuple):
    """What the figure shows."""

    lines: tuple[Line, ...]

    @property
    def longest(self) -> int:
        """The last position at which a token was verified."""
        return max((len(line.shares) for line in self.lines), default=1)


@view(
    "speculative_positions",
    title="Drafts: acceptance by position",
    tab="strategy",
    order=71,
    needs=needs,
)
def speculative_positions(traces: Sequence[Trace]) -> go.Figure:
    """Acceptance rate of the first, second, third … drafted token of a round. A token is verified
    only if all tokens before it in its draft were accepted.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> AcceptanceByPosition:
    return AcceptanceByPosition(
        tuple(
            Line(index, label, by_position(rounds(trace)))
            for index, (trace, label) in enumerate(zip(traces, labels(traces), strict=True))
            if needs(trace)
        )
    )


def _figure(info: AcceptanceByPosition) -> go.Figure:
    subtitle = "of the tokens verified at each position"
    figure = style.empty_figure(subtitle, "position in the draft", "accepted")
    for line in info.lines:
        figure.add_trace(_line(line))
    figure.update_xaxes(style.integer_axis(1, info.longest))
    figure.update_yaxes(range=[-0.04, 1.04], tickformat=".0%")
    figure.update_layout(height=420, meta=style.min_width(240 + 24 * min(info.longest, 32)))
    return figure


def _line(line: Line) -> go.Scatter:
    mark = style.run_mark(line.run)
    positions = range(1, len(line.shares) + 1)
    label = style.escape(line.label)
    return go.Scatter(
        x=list(positions),
        y=[share.rate for share in line.shares],
        hovertext=[
            f"position {position}: {share.accepted} of {share.verified} accepted<br>{label}"
            for position, share in zip(positions, line.shares, strict=True)
        ],
        hoverinfo="text",
        mode="lines+markers",
        line={"color": mark.colour, "width": 2},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size + 2},
        name=label,
        cliponaxis=False,
        showlegend=True,
    )
