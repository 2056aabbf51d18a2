"""Where drafts are kept: how undecided the model was before each drafted token.

Knows the entropy and the verdict that a run recorded. Refuses to count a token nobody judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Share, rounds
from visualizers._shared import style as style
from visualizers.registry import view
from visualizers.speculative._verdicts import MARKS, drafted_card

EDGES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 20.0)  # nats; few tokens are beyond


class Dot(NamedTuple):
    """One drafted token that was judged."""

    entropy: float
    kept: bool
    card: str


class Group(NamedTuple):
    """Tokens of like entropy, and how many of them were kept."""

    low: float
    high: float
    share: Share


class Decided(NamedTuple):
    """What the figure shows."""

    dots: tuple[Dot, ...]
    groups: tuple[Group, ...]


def needs(trace: Trace) -> bool:
    """A run that drafted something the model judged, with the model's distribution recorded."""
    judged = ("accepted", "rejected")
    return any(
        step.distribution is not None and "p" in step.notes
        for step in trace.steps
        if step.notes.get("verdict") in judged and "round" in step.notes
    )


@view("speculative_entropy", title="Drafts: kept by entropy", order=72, tab="why", needs=needs)
def speculative_entropy(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Every judged token of all drafts by how undecided the model was before it, above where it was
    kept and below where not; bars are the share kept of tokens of like entropy. Drafts do best
    where the model is sure.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Decided:
    dots = tuple(
        Dot(one.entropy, one.verdict == "accepted", drafted_card(one, each.number, label))
        for trace, label in zip(traces, style.labels(traces), strict=True)
        for each in rounds(trace)
        for one in each.drafted
        if one.judged and one.entropy is not None
    )
    groups = []
    for low, high in pairwise(EDGES):
        inside = [dot for dot in dots if low <= dot.entropy < high]
        if inside:
            kept = sum(dot.kept for dot in inside)
            groups.append(Group(low, high, Share(kept, len(inside))))
    return Decided(dots, tuple(groups))


def _figure(info: Decided) -> go.Figure:
    words = ("Drafts: kept by entropy", "bars: kept of the tokens of like entropy")
    figure = style.blank(*words, "entropy of the model (nats)", "kept")
    figure.update_layout(height=420, meta=style.at_least(320))
    if not info.dots:
        return figure
    most = max(dot.entropy for dot in info.dots)
    figure.add_trace(_bars(info, most))
    for verdict in ("accepted", "rejected"):
        if dots := [dot for dot in info.dots if dot.kept is (verdict == "accepted")]:
            figure.add_trace(_dots(dots, verdict))
    figure.update_yaxes(range=[-0.14, 1.14], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_xaxes(range=[-0.03 * most - 0.05, 1.05 * most + 0.05])
    return figure


def _bars(info: Decided, most: float) -> go.Bar:
    ends = [(group.low, max(min(group.high, most), group.low + 0.1)) for group in info.groups]
    return go.Bar(
        x=[(low + high) / 2 for low, high in ends],
        width=[high - low for low, high in ends],
        y=[group.share.rate for group in info.groups],
        hovertext=[
            f"{group.low:g} to {group.high:g} nats"
            f"<br>{group.share.accepted} of {group.share.judged} kept"
            for group in info.groups
        ],
        hoverinfo="text",
        marker={"color": style.QUIET, "line": {"color": style.INK, "width": 1}},
        showlegend=False,
    )


def _dots(dots: Sequence[Dot], verdict: str) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[dot.entropy for dot in dots],
        y=[1.07 if verdict == "accepted" else -0.07] * len(dots),
        hovertext=[dot.card for dot in dots],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size, "opacity": 0.8},
        name=verdict,
        cliponaxis=False,
        showlegend=True,
    )
