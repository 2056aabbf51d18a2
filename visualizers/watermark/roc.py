"""The ROC curve of a watermark detector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style


class RocPoint(NamedTuple):
    """A point of the curve, with the 95 % confidence interval of its true positive rate."""

    threshold: float
    false_positive_rate: float
    true_positive_rate: float
    low: float
    high: float


class OperatingPoint(NamedTuple):
    """The true positive rate at a given false positive rate; ``resolved`` is false if there were
    too few texts to measure that false positive rate."""

    false_positive_rate: float
    true_positive_rate: float
    low: float
    high: float
    resolved: bool


class RocCurve(NamedTuple):
    """The curve, and how many texts without a watermark it was measured on."""

    points: tuple[RocPoint, ...]
    operating_points: tuple[OperatingPoint, ...]
    auc: float
    human_texts: int


class Info(NamedTuple):
    """What the figure shows. The axis is logarithmic, so a false positive rate of 0 is drawn at
    ``edge``, below the lowest rate that the texts can show."""

    points: tuple[RocPoint, ...]
    operating_points: tuple[OperatingPoint, ...]
    auc: float
    edge: float


@view("watermark_roc", title="ROC curve", tab="calibrate", order=10, input=RocCurve)
def watermark_roc(curve: RocCurve) -> go.Figure:
    """Share of watermarked texts that are detected (true positives) by the share of human-written
    texts that are falsely detected (false positives), for every threshold of the z-score. Shaded:
    95 % confidence interval.
    """
    return _figure(_info(curve))


def _info(curve: RocCurve) -> Info:
    edge = 0.5 / curve.human_texts
    points = tuple(
        point._replace(false_positive_rate=max(edge, point.false_positive_rate))
        for point in curve.points
    )
    resolved = tuple(point for point in curve.operating_points if point.resolved)
    return Info(points, resolved, curve.auc, edge)


def _figure(info: Info) -> go.Figure:
    axes = ("false positive rate", "true positive rate")
    figure = style.empty_figure("shaded: 95 % confidence interval", *axes)
    x = [point.false_positive_rate for point in info.points]
    _add_band(figure, info, x)
    figure.add_scatter(
        x=x,
        y=[point.true_positive_rate for point in info.points],
        name="detector",
        line={"color": style.BLUE, "width": 2.5, "shape": "hv"},
        mode="lines",
        customdata=[point.threshold for point in info.points],
        hovertemplate="z above %{customdata:.2f}<br>true positives %{y:.1%}"
        "<br>false positives %{x:.2%}<extra></extra>",
    )
    _add_operating_points(figure, info)
    diagonal = [info.edge * (1 / info.edge) ** (step / 40) for step in range(41)]
    figure.add_scatter(
        x=diagonal,
        y=diagonal,
        name="random guess",
        mode="lines",
        line={"color": style.INK, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    ticks = [rate for rate in (0.0001, 0.001, 0.01, 0.1, 1.0) if rate > info.edge * 1.5]
    figure.update_xaxes(
        type="log",
        tickvals=[info.edge, *ticks],
        ticktext=["0", *(f"{100 * rate:g}%" for rate in ticks)],
    )
    figure.update_yaxes(range=[-0.02, 1.03], tickformat=".0%")
    return figure.update_layout(
        title={"text": f"ROC curve: AUC {info.auc:.4f}"},
        meta=style.min_width(420),
        height=430,
        margin={"b": 90},
    )


def _add_band(figure: go.Figure, info: Info, x: Sequence[float]) -> None:
    """The confidence intervals as a filled area."""
    border = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    line = {"color": style.TRANSPARENT, "shape": "hv"}
    figure.add_scatter(x=x, y=[point.low for point in info.points], line=line, **border)
    figure.add_scatter(
        x=x,
        y=[point.high for point in info.points],
        line=line,
        fill="tonexty",
        fillcolor="rgba(0,114,178,0.18)",
        **border,
    )


def _add_operating_points(figure: go.Figure, info: Info) -> None:
    """The rates at given false positive rates, each with its interval."""
    figure.add_scatter(
        x=[point.false_positive_rate for point in info.operating_points],
        y=[point.true_positive_rate for point in info.operating_points],
        name="operating points",
        mode="markers",
        marker={"symbol": "diamond", "color": style.VERMILLION, "size": 10},
        error_y={
            "array": [point.high - point.true_positive_rate for point in info.operating_points],
            "arrayminus": [point.true_positive_rate - point.low for point in info.operating_points],
        },
        hovertemplate="false positives %{x:.1%}<br>true positives %{y:.1%}<extra></extra>",
    )
