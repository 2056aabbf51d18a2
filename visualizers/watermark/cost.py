"""What a mark costs: how much less probable the model finds its own text.

Knows perplexities by bias. Refuses to know texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style


class Cost(NamedTuple):
    """Texts written with one bias; None where the scheme knows of none."""

    bias: float | None
    texts: int
    perplexity: float
    low: float
    high: float
    z: float  # their mean score
    found: float  # the share above the threshold


class Info(NamedTuple):
    """What is drawn: every bias under its name, the weakest first."""

    names: tuple[str, ...]
    costs: tuple[Cost, ...]


def cost(costs: Sequence[Cost]) -> go.Figure:
    """The perplexity of texts under the model without a mark, over the bias they were written
    with."""
    return _figure(_info(costs))


def _info(costs: Sequence[Cost]) -> Info:
    # Where there is no bias, there is one kind of marked text, beside those without a mark.
    ordered = sorted(costs, key=lambda one: float("inf") if one.bias is None else one.bias)
    return Info(tuple(_name(one.bias) for one in ordered), tuple(ordered))


def _name(bias: float | None) -> str:
    return "marked" if bias is None else "no mark" if bias == 0 else f"bias {bias:g}"


def _figure(info: Info) -> go.Figure:
    figure = style.blank(
        "What the mark costs",
        "under the model without a mark; bars: where it truly lies 95 times in 100",
        "how the texts were written",
        "perplexity",
    )
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
        customdata=[(one.texts, one.z, one.found) for one in info.costs],
        hovertemplate="%{x}: perplexity %{y:.2f}<br>%{customdata[0]} texts, mean z"
        " %{customdata[1]:.2f}, found %{customdata[2]:.1%}<extra></extra>",
        showlegend=False,
    )
    figure.update_yaxes(rangemode="tozero")
    return figure.update_layout(meta=style.at_least(420), height=430)
