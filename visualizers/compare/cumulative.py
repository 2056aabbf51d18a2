"""How probable each text was as a whole, token by token.

Knows the log-probabilities that steps recorded and adds them up. Refuses to guess one that is
missing: a sum ends where the next token was not captured or had been cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared.lines import (
    FILLED_AND_OPEN,
    Line,
    Lines,
    Point,
    along,
    best_path,
    measured,
    room,
    solid,
)
from visualizers._shared.style import blank, escape, pointed, spelled, trace_mark
from visualizers.registry import view


def needs(trace: Trace) -> bool:
    """Any trace whose text begins with a token that was captured."""
    return any(step.raw is not None for step in best_path(trace)[:1])


@view("cumulative", title="Cumulative log-probability", order=30, needs=needs)
def cumulative(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How probable the text was up to each token: filled marks as the model gave it, open ones as
    finally used.

    Every token takes a little away; the text whose line stays highest is the one the model itself
    finds most probable. A line ends where the next token was not captured or had been cut.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    """The sums so far; None from the first token on that one of them does not know."""
    lines = (_summed(line) for line in measured(traces, _logarithms).lines)
    return Lines(tuple(line for line in lines if line.points and line.points[0].raw is not None))


def _logarithms(step: Step) -> tuple[float | None, float | None]:
    return step.raw, step.final


def _summed(line: Line) -> Line:
    raws = _sums(point.raw for point in line.points)
    finals = _sums(point.final for point in line.points)
    sums = [
        point._replace(
            raw=raws[place] if place < len(raws) else None,
            final=finals[place] if place < len(finals) else None,
        )
        for place, point in enumerate(line.points)
    ]
    return line._replace(points=tuple(sums))


def _sums(values: Iterable[float | None]) -> list[float]:
    known = takewhile(lambda value: value is not None, values)
    return [*accumulate(value for value in known if value is not None)]


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    y_title = "log-probability so far (nats)"
    figure = blank("Cumulative log-probability", FILLED_AND_OPEN, "token", y_title)
    for line in info.lines:
        hovers = [_hover(line, place) for place in range(len(line.points))]
        figure.add_trace(solid(line, [point.raw for point in line.points], hovers))
        if any(map(_differs, line.points)):
            figure.add_trace(_dotted(line, hovers))
    figure.update_layout(meta=room(info.lines))
    figure.update_xaxes(along(info.lines))
    return pointed(figure, at)


def _differs(point: Point) -> bool:
    if point.final is None or point.raw is None:
        return point.final is not point.raw
    return not math.isclose(point.final, point.raw, abs_tol=1e-4)


def _dotted(line: Line, hovers: Sequence[str]) -> go.Scatter:
    mark = trace_mark(line.place)
    dotted = solid(line, [point.final for point in line.points], hovers)
    return dotted.update(
        line={"width": 1.5, "dash": "dot"},
        marker={"symbol": f"{mark.symbol}-open", "size": mark.size + 1},
        showlegend=False,
    )


def _hover(line: Line, place: int) -> str:
    point = line.points[place]
    since = f" since token {line.first}" if line.first > 1 else ""
    head = f"<b>{spelled(point.token)}</b>  token {line.places[place]}"
    return "<br>".join(
        [
            head,
            f"model: {_sum(point.raw, place + 1)}{since}",
            f"as used: {_sum(point.final, place + 1)}{since}",
            escape(line.label),
        ]
    )


def _sum(value: float | None, tokens: int) -> str:
    if value is None:
        return "unknown, a token up to here was cut or not captured"
    return f"{value:.2f} nats, {value / tokens:.2f} a token"
