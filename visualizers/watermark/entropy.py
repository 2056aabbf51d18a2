"""Green tokens of a watermarked run by the entropy of the model."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import best_path

EDGES = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 20.0)  # nats; the bins are narrow where tokens are many


class GreenListRun(NamedTuple):
    """A run with a green list, and the token position (from 0) to highlight."""

    trace: Trace
    greenlist_ratio: float  # share of green tokens without a watermark
    at: int | None = None


class TokenPoint(NamedTuple):
    """One token, the entropy of the model at it, and whether it is on the green list."""

    at: int  # position in the text, from 0
    token: str
    entropy: float
    green: bool


class Bin(NamedTuple):
    """The tokens in a range of entropies, and how many of them are green."""

    low: float
    high: float
    tokens: int
    green: int


class GreenByEntropy(NamedTuple):
    """What the figure shows."""

    points: tuple[TokenPoint, ...]
    bins: tuple[Bin, ...]
    greenlist_ratio: float
    at: int | None


@view(
    "watermark_entropy",
    title="Green tokens by entropy",
    tab="explain",
    order=20,
    input=GreenListRun,
)
def watermark_entropy(run: GreenListRun) -> go.Figure:
    """Each token by the entropy of the model at it: green tokens at the top, others at the bottom.
    Bars show the share of green tokens in each range of entropies; the dashed line is the share
    expected without a watermark.

    Where the model is confident, the bias does not change its choice, and the share stays near the
    dashed line.
    """
    return _figure(_info(run))


def _info(run: GreenListRun) -> GreenByEntropy:
    points = tuple(
        TokenPoint(at, step.token.text, step.distribution.raw_entropy, bool(step.notes["green"]))
        for at, step in enumerate(best_path(run.trace), start=len(run.trace.prefix))
        if step.distribution is not None
        and step.distribution.raw_entropy is not None
        and step.notes.get("green") is not None
    )
    bins = []
    for low, high in pairwise(EDGES):
        inside = [point for point in points if low <= point.entropy < high]
        if inside:
            bins.append(Bin(low, high, len(inside), sum(point.green for point in inside)))
    return GreenByEntropy(points, tuple(bins), run.greenlist_ratio, run.at)


def _figure(info: GreenByEntropy) -> go.Figure:
    subtitle = "bars: share of green tokens · dashed: expected without a watermark"
    figure = style.empty_figure(subtitle, "entropy (nats)", "green tokens")
    figure.update_layout(height=420)
    if not info.points:
        return style.with_message(figure, "Not captured: no step recorded whether it is green.")
    highest = max(point.entropy for point in info.points)
    figure.add_trace(_bars(info, highest))
    for green, name, symbol, colour in (
        (True, "green", "circle", style.GREEN),
        (False, "not green", "x", style.VERMILLION),
    ):
        figure.add_trace(_markers(info, green, name, symbol, colour))
    figure.add_hline(info.greenlist_ratio, line={"color": style.INK, "width": 1.5, "dash": "dash"})
    for point in info.points:
        if point.at == info.at:
            figure.add_trace(_ring(point))
    figure.update_yaxes(range=[-0.14, 1.14], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    figure.update_xaxes(range=[-0.03 * highest - 0.05, 1.05 * highest + 0.05])
    return figure


def _bars(info: GreenByEntropy, highest: float) -> go.Bar:
    ends = [(one.low, max(min(one.high, highest), one.low + 0.1)) for one in info.bins]
    return go.Bar(
        x=[(low + high) / 2 for low, high in ends],
        width=[high - low for low, high in ends],
        y=[one.green / one.tokens for one in info.bins],
        hovertext=[
            f"{one.low:g} to {one.high:g} nats<br>{one.green} of {one.tokens} tokens green"
            for one in info.bins
        ],
        hoverinfo="text",
        marker={"color": style.MUTED, "line": {"color": style.INK, "width": 1}},
        showlegend=False,
    )


def _markers(info: GreenByEntropy, green: bool, name: str, symbol: str, colour: str) -> go.Scatter:
    points = [point for point in info.points if point.green is green]
    return go.Scatter(
        x=[point.entropy for point in points],
        y=[1.07 if green else -0.07] * len(points),
        hovertext=[
            f"<b>{style.token_label(point.token)}</b>  token {point.at + 1}<br>{name}, "
            f"{point.entropy:.2f} nats"
            for point in points
        ],
        hoverinfo="text",
        mode="markers",
        marker={"symbol": symbol, "color": colour, "size": 8, "opacity": 0.8},
        name=name,
        cliponaxis=False,
        showlegend=True,
    )


def _ring(point: TokenPoint) -> go.Scatter:
    """A circle around the highlighted token."""
    return go.Scatter(
        x=[point.entropy],
        y=[1.07 if point.green else -0.07],
        mode="markers",
        marker={"symbol": "circle-open", "color": style.INK, "size": 18, "line": {"width": 2.5}},
        hoverinfo="skip",
        cliponaxis=False,
        showlegend=False,
    )
