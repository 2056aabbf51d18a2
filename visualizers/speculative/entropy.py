"""Acceptance of drafted tokens by the entropy of the target model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Share, rounds
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import labels
from visualizers.speculative._verdicts import MARKS, drafted_hover

EDGES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 20.0)  # nats; the bins are narrow where tokens are many


class VerifiedToken(NamedTuple):
    """A drafted token that the target model accepted or rejected."""

    entropy: float
    accepted: bool
    hover: str


class Bin(NamedTuple):
    """The tokens in a range of entropies, and how many of them were accepted."""

    low: float
    high: float
    share: Share


class AcceptanceByEntropy(NamedTuple):
    """What the figure shows."""

    tokens: tuple[VerifiedToken, ...]
    bins: tuple[Bin, ...]


def needs(trace: Trace) -> bool:
    """Whether the target's distribution was recorded at any verified token."""
    return any(
        step.distribution is not None and "p" in step.notes
        for step in trace.steps
        if step.notes.get("verdict") in ("accepted", "rejected") and "round" in step.notes
    )


@view(
    "speculative_entropy",
    title="Drafts: acceptance by entropy",
    tab="strategy",
    order=72,
    needs=needs,
)
def speculative_entropy(traces: Sequence[Trace]) -> go.Figure:
    """Each verified draft token by the entropy of the target model at it: accepted tokens at the
    top, rejected ones at the bottom. Bars show the acceptance rate in each range of entropies:
    drafts are accepted most often where the model is confident.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> AcceptanceByEntropy:
    tokens = tuple(
        VerifiedToken(
            drafted.entropy,
            drafted.verdict == "accepted",
            drafted_hover(drafted, each.number, label),
        )
        for trace, label in zip(traces, labels(traces), strict=True)
        for each in rounds(trace)
        for drafted in each.drafted
        if drafted.verified and drafted.entropy is not None
    )
    bins = []
    for low, high in pairwise(EDGES):
        inside = [token for token in tokens if low <= token.entropy < high]
        if inside:
            accepted = sum(token.accepted for token in inside)
            bins.append(Bin(low, high, Share(accepted, len(inside))))
    return AcceptanceByEntropy(tokens, tuple(bins))


def _figure(info: AcceptanceByEntropy) -> go.Figure:
    axes = ("entropy of the target model (nats)", "accepted")
    figure = style.empty_figure("bars: acceptance rate in each range of entropies", *axes)
    figure.update_layout(height=420)
    if not info.tokens:
        return figure
    highest = max(token.entropy for token in info.tokens)
    figure.add_trace(_bars(info, highest))
    for verdict in ("accepted", "rejected"):
        is_accepted = verdict == "accepted"
        if tokens := [token for token in info.tokens if token.accepted is is_accepted]:
            figure.add_trace(_markers(tokens, verdict))
    figure.update_yaxes(range=[-0.14, 1.14], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_xaxes(range=[-0.03 * highest - 0.05, 1.05 * highest + 0.05])
    return figure


def _bars(info: AcceptanceByEntropy, highest: float) -> go.Bar:
    ends = [(one.low, max(min(one.high, highest), one.low + 0.1)) for one in info.bins]
    return go.Bar(
        x=[(low + high) / 2 for low, high in ends],
        width=[high - low for low, high in ends],
        y=[one.share.rate for one in info.bins],
        hovertext=[
            f"{one.low:g} to {one.high:g} nats"
            f"<br>{one.share.accepted} of {one.share.verified} accepted"
            for one in info.bins
        ],
        hoverinfo="text",
        marker={"color": style.MUTED, "line": {"color": style.INK, "width": 1}},
        showlegend=False,
    )


def _markers(tokens: Sequence[VerifiedToken], verdict: str) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[token.entropy for token in tokens],
        y=[1.07 if verdict == "accepted" else -0.07] * len(tokens),
        hovertext=[token.hover for token in tokens],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size, "opacity": 0.8},
        name=verdict,
        cliponaxis=False,
        showlegend=True,
    )
