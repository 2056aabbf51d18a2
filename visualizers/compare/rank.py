"""Rank of each token in the model's distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace import Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import best_path
from visualizers.shared.token_lines import (
    Line,
    Point,
    line_trace,
    lines_min_width,
    position_axis,
    probabilities,
    token_lines,
)


class Bucket(NamedTuple):
    """A range of ranks and the colour of its bars (viridis, reversed)."""

    first: int
    last: float
    name: str
    colour: str


BUCKETS = (
    Bucket(1, 1, "1", "#fde725"),
    Bucket(2, 10, "2 to 10", "#5ec962"),
    Bucket(11, 100, "11 to 100", "#21918c"),
    Bucket(101, 1000, "101 to 1,000", "#3b528b"),
    Bucket(1001, float("inf"), "above 1,000", "#440154"),
)
_BORDERS = (0.7, 2**0.5, 10.5, 100.5, 1000.5)  # upper border of each bucket on the log axis
_LINES, _BAR, _BETWEEN, _TOP, _BOTTOM = 260, 44, 70, 80, 110  # pixels


class Ranks(NamedTuple):
    """What the figure shows: the rank of each token, and the number of tokens in each bucket."""

    lines: tuple[Line, ...]
    counts: tuple[tuple[int, ...], ...]


def needs(trace: Trace) -> bool:
    """Whether the rank of any token of the text was captured."""
    return any(step.rank is not None for step in best_path(trace))


@view("rank", title="Rank", order=15, needs=needs)
def rank(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Rank of each token in the model's distribution (1 is the most probable token), and how many
    tokens of each text fall into each range of ranks.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Ranks:
    lines = tuple(line for line in token_lines(traces, probabilities).lines if _captured(line))
    return Ranks(lines, tuple(map(_counts, lines)))


def _captured(line: Line) -> list[int]:
    return [point.rank for point in line.points if point.rank is not None]


def _counts(line: Line) -> tuple[int, ...]:
    return tuple(
        sum(bucket.first <= rank <= bucket.last for rank in _captured(line)) for bucket in BUCKETS
    )


def _figure(info: Ranks, at: int | None = None) -> go.Figure:
    figure = _panels(info)
    for line in info.lines:
        hovers = [_hover(point, line.label) for point in line.points]
        ranks = [point.rank for point in line.points]
        figure.add_trace(line_trace(line, ranks, hovers), row=1, col=1)
    if info.lines:
        figure.add_traces(_bars(info), rows=2, cols=1)
    figure.update_layout(annotations=[*_bucket_names(info), *_run_names(info)])
    return style.mark_position(figure, at, row=1)


def _panels(info: Ranks) -> go.Figure:
    bars = _BAR * (len(info.lines) + 0.4)
    inside = _LINES + _BETWEEN + bars
    figure = make_subplots(
        rows=2,
        row_heights=[_LINES, bars],
        vertical_spacing=_BETWEEN / inside,
        figure=style.empty_figure("1: the model's most probable token", "", ""),
    )
    figure.update_layout(
        height=inside + _TOP + _BOTTOM,
        margin={"t": _TOP, "b": _BOTTOM, "r": 95},  # the names of the buckets are on the right
        meta=lines_min_width(info.lines),
        barmode="stack",
    )
    borders = _borders(info)
    for bucket, (above, below) in zip(BUCKETS, pairwise(borders), strict=False):
        tint = {"fillcolor": bucket.colour, "opacity": 0.16, "layer": "below", "line": {"width": 0}}
        figure.add_hrect(above, below, **tint, row=1, exclude_empty_subplots=False)
    descending = [math.log10(borders[-1]), math.log10(borders[0])]
    figure.update_xaxes(title="token", **position_axis(info.lines), row=1)
    logarithmic = {"type": "log", "dtick": 1, "tickformat": ",d", "range": descending}
    figure.update_yaxes(title="rank", **logarithmic, row=1)
    figure.update_xaxes(title="tokens in each range", showgrid=False, rangemode="tozero", row=2)
    runs = {"range": [len(info.lines) - 0.3, -0.7], "showgrid": False, "showticklabels": False}
    figure.update_yaxes(title="run", **runs, row=2)
    return figure


def _borders(info: Ranks) -> list[float]:
    """The borders of the buckets in use, down to the lowest rank and at least to rank 10."""
    lowest = max((rank for line in info.lines for rank in _captured(line)), default=1)
    used = [border for border in _BORDERS if border < max(lowest, 10)]
    return [*used, max(lowest, 10) * 1.5]


def _bucket_names(info: Ranks) -> list[dict[str, Any]]:
    """The names of the buckets, to the right of the lines."""
    logs = [math.log10(border) for border in _borders(info)]
    return [
        {
            "text": bucket.name,
            "showarrow": False,
            **{"xref": "x domain", "x": 1, "xanchor": "left", "xshift": 6},
            **{"yref": "y", "y": (above + below) / 2, "font": {"size": 12}},
        }
        for bucket, (above, below) in zip(BUCKETS, pairwise(logs), strict=False)
    ]


def _run_names(info: Ranks) -> list[dict[str, Any]]:
    """The labels of the runs, above their bars: beside them, a long label would leave no room."""
    return [
        {
            "text": style.escape(line.label),
            "showarrow": False,
            **{"xref": "x2 domain", "x": 0, "xanchor": "left", "align": "left"},
            **{"yref": "y2", "y": row - 0.25, "yanchor": "bottom", "font": {"size": 12}},
        }
        for row, line in enumerate(info.lines)
    ]


def _bars(info: Ranks) -> list[go.Bar]:
    """One stacked bar per run, with a segment for each bucket."""
    return [
        go.Bar(
            x=[counts[index] for counts in info.counts],
            y=[*range(len(info.lines))],
            orientation="h",
            width=0.45,
            marker={"color": bucket.colour, "line": {"color": style.MUTED, "width": 1}},
            text=[str(counts[index] or "") for counts in info.counts],
            **{"textposition": "inside", "insidetextanchor": "middle", "textangle": 0},
            **{"constraintext": "none", "textfont": {"size": 12}},
            hovertext=[
                f"<b>rank {bucket.name}</b><br>{counts[index]:,} of {sum(counts):,} tokens"
                f"<br>{style.escape(line.label)}"
                for line, counts in zip(info.lines, info.counts, strict=True)
            ],
            hoverinfo="text",
            showlegend=False,
        )
        for index, bucket in enumerate(BUCKETS)
    ]


def _hover(point: Point, label: str) -> str:
    rank = "rank not captured" if point.rank is None else f"rank {point.rank:,}"
    return "<br>".join(
        [
            f"<b>{style.token_label(point.token)}</b>  {style.escape(point.event)}",
            rank,
            f"model: {style.percent(point.raw)}",
            style.escape(label),
        ]
    )
