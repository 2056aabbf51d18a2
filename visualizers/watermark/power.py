"""Detection rate of watermarked texts by their length."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style


class RateAtLength(NamedTuple):
    """The share of texts detected at a length, with its 95 % confidence interval."""

    length: int
    rate: float
    low: float
    high: float


class LengthNeeded(NamedTuple):
    """The length from which on a share of the texts is detected; None: no text was that long."""

    power: float
    length: int | None


class DetectionPower(NamedTuple):
    """The detection rate after 1, 2, 3 … tokens."""

    rates: tuple[float, ...]
    at_lengths: tuple[RateAtLength, ...]
    needed: tuple[LengthNeeded, ...]
    threshold: float


class Info(NamedTuple):
    """What the figure shows, and the lengths needed in words."""

    power: DetectionPower
    subtitle: str


@view("watermark_power", title="Power", tab="calibrate", order=30, input=DetectionPower)
def watermark_power(power: DetectionPower) -> go.Figure:
    """Share of watermarked texts with a z-score above the threshold, by length. Brackets: 95 %
    confidence interval. Dotted lines: the lengths from which on a given share is detected.
    """
    return _figure(_info(power))


def _info(power: DetectionPower) -> Info:
    reached = [f"{one.power:.0%} from {one.length} tokens" for one in power.needed if one.length]
    missed = [f"{one.power:.0%}" for one in power.needed if not one.length]
    parts = [f"detected: {', '.join(reached)}"] * bool(reached)
    parts += [f"not reached: {', '.join(missed)}"] * bool(missed)
    return Info(power, "; ".join(parts))


def _figure(info: Info) -> go.Figure:
    power = info.power
    figure = style.empty_figure(info.subtitle, "tokens of the text", "watermarked texts detected")
    figure.add_scatter(
        x=list(range(1, len(power.rates) + 1)),
        y=power.rates,
        name="after each token",
        mode="lines",
        line={"color": style.BLUE, "width": 2.5, "shape": "hv"},
        hovertemplate="%{x} tokens<br>detected %{y:.1%}<extra></extra>",
    )
    figure.add_scatter(
        x=[one.length for one in power.at_lengths],
        y=[one.rate for one in power.at_lengths],
        name="with 95 % confidence interval",
        mode="markers",
        marker={"symbol": "square", "color": style.VERMILLION, "size": 8},
        error_y={
            "array": [one.high - one.rate for one in power.at_lengths],
            "arrayminus": [one.rate - one.low for one in power.at_lengths],
        },
        hovertemplate="%{x} tokens<br>detected %{y:.1%}<extra></extra>",
    )
    for one in power.needed:
        if one.length is not None:
            figure.add_vline(one.length, line={"color": style.INK, "dash": "dot", "width": 1.5})
    figure.update_xaxes(range=[0, len(power.rates) * 1.03])
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".0%")
    return figure.update_layout(
        title={"text": f"Power: watermarked texts with z above {power.threshold:g}"},
        meta=style.min_width(420),
        height=430,
        margin={"b": 90},
    )
