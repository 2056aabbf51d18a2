"""Drafted tokens by their probability under the target model and under the drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import VERDICTS, Drafted, rounds
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import labels
from visualizers.speculative._verdicts import MARKS, NAMES, drafted_hover


class DraftedToken(NamedTuple):
    """One drafted token; ``required`` is the p above which its random draw accepts it, None where
    nothing was drawn."""

    p: float
    q: float
    verdict: str
    required: float | None
    hover: str


class DraftedTokens(NamedTuple):
    """What the figure shows."""

    tokens: tuple[DraftedToken, ...]


def needs(trace: Trace) -> bool:
    """Whether the probabilities under both models were recorded."""
    return any("p" in step.notes and "q" in step.notes for step in trace.steps)


@view("speculative_p_q", title="Drafts: p against q", tab="strategy", order=70, needs=needs)
def speculative_p_q(traces: Sequence[Trace]) -> go.Figure:
    """Each drafted token by its probability under the drafter (q) and under the target model (p).
    With sampling, a token above the dashed line is always accepted; below it a random draw decides,
    and the thin line ends at the p that this draw required.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> DraftedTokens:
    return DraftedTokens(
        tuple(
            DraftedToken(
                drafted.p,
                drafted.q,
                drafted.verdict,
                _required(drafted),
                drafted_hover(drafted, each.number, label),
            )
            for trace, label in zip(traces, labels(traces), strict=True)
            if needs(trace)
            for each in rounds(trace)
            for drafted in each.drafted
            if drafted.p is not None and drafted.q is not None
        )
    )


def _required(drafted: Drafted) -> float | None:
    """A token is accepted if draw < p / q, that is, if p > draw · q."""
    return None if drafted.draw is None or drafted.q is None else drafted.draw * drafted.q


def _figure(info: DraftedTokens) -> go.Figure:
    subtitle = "dashed: p = q · thin lines: to the p that the draw required"
    figure = style.empty_figure(subtitle, "q, drafter", "p, target model")
    figure.update_layout(height=560)
    axis = {"range": [-0.03, 1.03], "tickformat": ".0%"}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    if not info.tokens:
        return figure
    figure.add_shape(
        type="line",
        **{"x0": 0, "y0": 0, "x1": 1, "y1": 1},
        line={"color": style.INK, "width": 1.5, "dash": "dash"},
    )
    if drawn := [token for token in info.tokens if token.required is not None]:
        figure.add_trace(_stems(drawn))
    for verdict in VERDICTS:
        if tokens := [token for token in info.tokens if token.verdict == verdict]:
            figure.add_trace(_markers(tokens, verdict))
    return figure


def _stems(tokens: Sequence[DraftedToken]) -> go.Scatter:
    return go.Scatter(
        x=[x for token in tokens for x in (token.q, token.q, None)],
        y=[y for token in tokens for y in (token.p, token.required, None)],
        mode="lines",
        line={"color": style.MUTED, "width": 1.5},
        hoverinfo="skip",
        name="to the required p",
    )


def _markers(tokens: Sequence[DraftedToken], verdict: str) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[token.q for token in tokens],
        y=[token.p for token in tokens],
        hovertext=[token.hover for token in tokens],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size, "opacity": 0.85},
        name=f"{NAMES[verdict]} ({len(tokens)})",
        cliponaxis=False,
        showlegend=True,
    )
