"""Which place each token of the text had in the model's own order.

Knows ranks and the buckets people sort them into. Refuses to know why a token was taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import Line, Point, along, best_path, measured, room, solid
from visualizers.registry import view


class Bucket(NamedTuple):
    """Ranks that mean about the same, and the colour of their bars (viridis, read backwards)."""

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
_BORDERS = (0.7, 2**0.5, 10.5, 100.5, 1000.5)  # above each bucket; 1 and 2 lie far apart
_LINES, _BAR, _BETWEEN, _TOP, _BOTTOM = 260, 44, 70, 80, 110  # pixels


class Ranks(NamedTuple):
    """What the figure shows: the ranks along each text, and how many fall into each bucket."""

    lines: tuple[Line, ...]
    counts: tuple[tuple[int, ...], ...]


def needs(trace: Trace) -> bool:
    """Any trace whose text has a token of known rank."""
    return any(step.rank is not None for step in best_path(trace))


@view("rank", title="Rank", order=15, needs=needs)
def rank(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """The place each token had in the model's own order, 1 being what it found most probable, and
    how many tokens of each text came from how far down.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Ranks:
    lines = tuple(line for line in measured(traces, _probabilities).lines if _seen(line))
    return Ranks(lines, tuple(map(_counts, lines)))


def _probabilities(step: Step) -> tuple[float | None, float | None]:
    return step.probability, step.used


def _seen(line: Line) -> list[int]:
    return [point.rank for point in line.points if point.rank is not None]


def _counts(line: Line) -> tuple[int, ...]:
    return tuple(
        sum(bucket.first <= rank <= bucket.last for rank in _seen(line)) for bucket in BUCKETS
    )


def _figure(info: Ranks, at: int | None = None) -> go.Figure:
    figure = _canvas(info)
    for line in info.lines:
        hovers = [_hover(point, line.label) for point in line.points]
        figure.add_trace(solid(line, [point.rank for point in line.points], hovers), row=1, col=1)
    if info.lines:
        figure.add_traces(_bars(info), rows=2, cols=1)
    figure.update_layout(annotations=[*_bucket_names(info), *_run_names(info)])
    return style.pointed(figure, at, row=1)


def _canvas(info: Ranks) -> go.Figure:
    bars = _BAR * (len(info.lines) + 0.4)
    inside = _LINES + _BETWEEN + bars
    figure = make_subplots(
        rows=2,
        row_heights=[_LINES, bars],
        vertical_spacing=_BETWEEN / inside,
        figure=style.blank("Rank", "1: what the model found most probable", "", ""),
    )
    figure.update_layout(
        height=inside + _TOP + _BOTTOM,
        margin={"t": _TOP, "b": _BOTTOM, "r": 95},  # the right is for the buckets' names
        meta=room(info.lines),
        barmode="stack",
    )
    borders = _borders(info)
    for bucket, (above, below) in zip(BUCKETS, pairwise(borders), strict=False):
        tint = {"fillcolor": bucket.colour, "opacity": 0.16, "layer": "below", "line": {"width": 0}}
        figure.add_hrect(above, below, **tint, row=1, exclude_empty_subplots=False)
    upside_down = [math.log10(borders[-1]), math.log10(borders[0])]
    figure.update_xaxes(title="token", **along(info.lines), row=1)
    logarithmic = {"type": "log", "dtick": 1, "tickformat": ",d", "range": upside_down}
    figure.update_yaxes(title="rank", **logarithmic, row=1)
    figure.update_xaxes(title="tokens of each rank", showgrid=False, rangemode="tozero", row=2)
    runs = {"range": [len(info.lines) - 0.3, -0.7], "showgrid": False, "showticklabels": False}
    figure.update_yaxes(title="run", **runs, row=2)
    return figure


def _borders(info: Ranks) -> list[float]:
    """Above and below every bucket, as far down as the ranks go and at least to the tenth."""
    lowest = max((rank for line in info.lines for rank in _seen(line)), default=1)
    used = [border for border in _BORDERS if border < max(lowest, 10)]
    return [*used, max(lowest, 10) * 1.5]


def _bucket_names(info: Ranks) -> list[dict[str, Any]]:
    """Beside its stretch of the axis the name of each bucket."""
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
    """Above its bar the name of each run: beside it, a long one would leave no room for the bar."""
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
    """One bar per run, divided among the buckets."""
    return [
        go.Bar(
            x=[counts[place] for counts in info.counts],
            y=[*range(len(info.lines))],
            orientation="h",
            width=0.45,
            marker={"color": bucket.colour, "line": {"color": style.QUIET, "width": 1}},
            text=[str(counts[place] or "") for counts in info.counts],
            **{"textposition": "inside", "insidetextanchor": "middle", "textangle": 0},
            **{"constraintext": "none", "textfont": {"size": 12}},
            hovertext=[
                f"<b>rank {bucket.name}</b><br>{counts[place]:,} of {sum(counts):,} tokens"
                f"<br>{style.escape(line.label)}"
                for line, counts in zip(info.lines, info.counts, strict=True)
            ],
            hoverinfo="text",
            showlegend=False,
        )
        for place, bucket in enumerate(BUCKETS)
    ]


def _hover(point: Point, label: str) -> str:
    head = f"<b>{style.spelled(point.token)}</b>  {style.escape(point.event)}"
    given = "" if point.raw is None else f"model: {style.percent(point.raw)}"
    return "<br>".join([head, f"rank {point.rank}", given, style.escape(label)])
