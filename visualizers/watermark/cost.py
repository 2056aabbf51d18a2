"""The cost of a watermark: perplexity of texts by the bias they were written with."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style


class BiasCost(NamedTuple):
    """Texts written with one bias; None where the scheme has no bias."""

    bias: float | None
    texts: int
    perplexity: float
    low: float  # 95 % confidence interval of the perplexity
    high: float
    mean_z: float
    detected: float  # share of texts above the threshold


class WatermarkCost(NamedTuple):
    """The texts of all biases."""

    costs: tuple[BiasCost, ...]


class Info(NamedTuple):
    """What the figure shows: every bias with its name, the weakest first."""

    names: tuple[str, ...]
    costs: tuple[BiasCost, ...]


@view(
    "watermark_cost", title="Cost of the watermark", tab="calibrate", order=40, input=WatermarkCost
)
def watermark_cost(cost: WatermarkCost) -> go.Figure:
    """Perplexity of the texts under the model without a watermark, by the bias they were written
    with. Brackets: 95 % confidence interval.
    """
    return _figure(_info(cost))


def _info(cost: WatermarkCost) -> Info:
    # A scheme without a bias has watermarked texts of one kind, after those without a watermark.
    ordered = sorted(cost.costs, key=lambda one: float("inf") if one.bias is None else one.bias)
    return Info(tuple(_name(one.bias) for one in ordered), tuple(ordered))


def _name(bias: float | None) -> str:
    return "watermarked" if bias is None else "no watermark" if bias == 0 else f"bias {bias:g}"


def _figure(info: Info) -> go.Figure:
    subtitle = "under the model without a watermark · brackets: 95 % confidence interval"
    figure = style.empty_figure(subtitle, "texts written with", "perplexity")
    figure.add_scatter(
        x=info.names,
        y=[one.perplexity for one in info.costs],
        mode="lines+markers",
        line={"color": style.BLUE, "width": 2},
        marker={"symbol": "diamond", "size": 10},
        error_y={
            "array": [one.high - one.perplexity for one in info.costs],
            "arrayminus": [one.perplexity - one.low for one in info.costs],
        },
        customdata=[(one.texts, one.mean_z, one.detected) for one in info.costs],
        hovertemplate="%{x}: perplexity %{y:.2f}<br>%{customdata[0]} texts, mean z"
        " %{customdata[1]:.2f}, detected %{customdata[2]:.1%}<extra></extra>",
        showlegend=False,
    )
    figure.update_yaxes(rangemode="tozero")
    return figure.update_layout(meta=style.min_width(420), height=430)
