"""How many marked texts a detector finds, by how many others it takes for marked.

Knows rates. Refuses to know scores: who counted them tells how sure each rate is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style


class Corner(NamedTuple):
    """A point of the curve, and the interval its rate of true positives lies in."""

    threshold: float
    false_positives: float
    true_positives: float
    low: float
    high: float


class Operating(NamedTuple):
    """What is found at a rate of false alarms; ``resolved`` where the texts could show the rate."""

    asked: float
    found: float
    low: float
    high: float
    resolved: bool


class Info(NamedTuple):
    """What is drawn. No false alarm at all has no place on a logarithmic axis: it stands at
    ``edge``, below the lowest rate that so many texts can show."""

    corners: tuple[Corner, ...]
    operating: tuple[Operating, ...]
    auc: float
    edge: float


def roc(
    corners: Sequence[Corner], operating: Sequence[Operating], auc: float, texts: int
) -> go.Figure:
    """The ROC curve with the interval of every rate that was counted; ``texts`` are those without a
    mark."""
    return _figure(_info(corners, operating, auc, texts))


def _info(
    corners: Sequence[Corner], operating: Sequence[Operating], auc: float, texts: int
) -> Info:
    edge = 0.5 / texts
    drawn = tuple(
        corner._replace(false_positives=max(edge, corner.false_positives)) for corner in corners
    )
    return Info(drawn, tuple(one for one in operating if one.resolved), auc, edge)


def _figure(info: Info) -> go.Figure:
    figure = style.blank(
        f"ROC curve: AUC {info.auc:.4f}",
        "shaded: where the true rate lies 95 times in 100",
        "human texts taken for marked",
        "marked texts found",
    )
    x = [corner.false_positives for corner in info.corners]
    _band(figure, info, x)
    figure.add_scatter(
        x=x,
        y=[corner.true_positives for corner in info.corners],
        name="found",
        line={"color": style.BLUE, "width": 2.5, "shape": "hv"},
        mode="lines",
        customdata=[corner.threshold for corner in info.corners],
        hovertemplate="z above %{customdata:.2f}<br>found %{y:.1%}<br>false alarms %{x:.2%}"
        "<extra></extra>",
    )
    _operating(figure, info)
    chance = [info.edge * (1 / info.edge) ** (step / 40) for step in range(41)]
    figure.add_scatter(
        x=chance,
        y=chance,
        name="guessing",
        mode="lines",
        line={"color": style.INK, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    ticks = [rate for rate in (0.0001, 0.001, 0.01, 0.1, 1.0) if rate > info.edge * 1.5]
    figure.update_xaxes(
        type="log",
        tickvals=[info.edge, *ticks],
        ticktext=[
            "none",
            *(f"{rate:.2%}".replace("0%", "%").replace(".0%", "%") for rate in ticks),
        ],
    )
    figure.update_yaxes(range=[-0.02, 1.03], tickformat=".0%")
    return figure.update_layout(meta=style.at_least(420), height=430, margin={"b": 90})


def _band(figure: go.Figure, info: Info, x: Sequence[float]) -> None:
    """The intervals, as an area."""
    edge = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    line = {"color": style.CLEAR, "shape": "hv"}
    figure.add_scatter(x=x, y=[corner.low for corner in info.corners], line=line, **edge)
    figure.add_scatter(
        x=x,
        y=[corner.high for corner in info.corners],
        line=line,
        fill="tonexty",
        fillcolor="rgba(0,114,178,0.18)",
        **edge,
    )


def _operating(figure: go.Figure, info: Info) -> None:
    """The rates that were asked for, each with its interval."""
    figure.add_scatter(
        x=[one.asked for one in info.operating],
        y=[one.found for one in info.operating],
        name="at the rates asked for",
        mode="markers",
        marker={"symbol": "diamond", "color": style.VERMILLION, "size": 10},
        error_y={
            "array": [one.high - one.found for one in info.operating],
            "arrayminus": [one.found - one.low for one in info.operating],
        },
        hovertemplate="false alarms %{x:.1%}<br>found %{y:.1%}<extra></extra>",
    )
