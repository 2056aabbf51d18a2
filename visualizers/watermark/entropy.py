"""Why steps where the model is sure carry no mark.

Knows the entropy and the green note that a run's steps recorded. Refuses to work out a green list.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path

EDGES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 20.0)  # nats; few steps are beyond


class Dot(NamedTuple):
    """One step: how undecided the model was, and whether the token it took was raised."""

    at: int  # place in the text, from 0
    token: str
    entropy: float
    green: bool


class Group(NamedTuple):
    """Steps of like entropy, and how many of them are green."""

    low: float
    high: float
    steps: int
    green: int


class Marked(NamedTuple):
    """What the figure shows; ``ratio`` is what chance would give."""

    dots: tuple[Dot, ...]
    groups: tuple[Group, ...]
    ratio: float


def watermark_entropy(trace: Trace, ratio: float, at: int | None = None) -> go.Figure:
    """Every token of the text by how undecided the model was, above where it is green and below
    where it is not; bars are the green share of tokens of like entropy, dashed is chance.

    Where the model is sure the bias changes nothing, and the share stays near chance.
    """
    return _figure(_info(trace, ratio), at)


def _info(trace: Trace, ratio: float) -> Marked:
    dots = tuple(
        Dot(at, step.token.text, step.distribution.raw_entropy, bool(step.notes["green"]))
        for at, step in enumerate(best_path(trace), start=len(trace.prefix))
        if step.distribution is not None and "green" in step.notes
    )
    groups = []
    for low, high in pairwise(EDGES):
        inside = [dot for dot in dots if low <= dot.entropy < high]
        if inside:
            groups.append(Group(low, high, len(inside), sum(dot.green for dot in inside)))
    return Marked(dots, tuple(groups), ratio)


def _figure(info: Marked, at: int | None = None) -> go.Figure:
    told = "bars: green share of tokens of like entropy · dashed: chance"
    figure = style.blank("Entropy and the mark", told, "entropy (nats)", "green share")
    figure.update_layout(height=420, meta=style.at_least(320))
    if not info.dots:
        return style.said(figure, "no step recorded whether it is green")
    most = max(dot.entropy for dot in info.dots)
    figure.add_trace(_bars(info, most))
    for green, name, symbol, colour in (
        (True, "green token", "circle", style.GREEN),
        (False, "not green", "x", style.VERMILLION),
    ):
        figure.add_trace(_dots(info, green, name, symbol, colour))
    figure.add_hline(info.ratio, line={"color": style.INK, "width": 1.5, "dash": "dash"})
    for dot in info.dots:
        if dot.at == at:
            figure.add_trace(_ring(dot))
    figure.update_yaxes(range=[-0.14, 1.14], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_xaxes(range=[-0.03 * most - 0.05, 1.05 * most + 0.05])
    return figure


def _bars(info: Marked, most: float) -> go.Bar:
    ends = [(group.low, max(min(group.high, most), group.low + 0.1)) for group in info.groups]
    return go.Bar(
        x=[(low + high) / 2 for low, high in ends],
        width=[high - low for low, high in ends],
        y=[group.green / group.steps for group in info.groups],
        hovertext=[
            f"{group.low:g} to {group.high:g} nats<br>{group.green} of {group.steps} tokens green"
            for group in info.groups
        ],
        hoverinfo="text",
        marker={"color": style.QUIET, "line": {"color": style.INK, "width": 1}},
        showlegend=False,
    )


def _dots(info: Marked, green: bool, name: str, symbol: str, colour: str) -> go.Scatter:
    dots = [dot for dot in info.dots if dot.green is green]
    return go.Scatter(
        x=[dot.entropy for dot in dots],
        y=[1.07 if green else -0.07] * len(dots),
        hovertext=[
            f"<b>{style.spelled(dot.token)}</b>  token {dot.at + 1}<br>{name}, "
            f"{dot.entropy:.2f} nats"
            for dot in dots
        ],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 8, "opacity": 0.8},
        name=name,
        cliponaxis=False,
        showlegend=True,
    )


def _ring(dot: Dot) -> go.Scatter:
    """A circle around the token that is pointed out."""
    return go.Scatter(
        x=[dot.entropy],
        y=[1.07 if dot.green else -0.07],
        mode="markers",
        marker={"symbol": "circle-open", "color": style.INK, "size": 18, "line": {"width": 2.5}},
        hoverinfo="skip",
        cliponaxis=False,
        showlegend=False,
    )
