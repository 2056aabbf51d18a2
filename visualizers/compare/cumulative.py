"""Log-probability of the text up to each token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared.runs import best_path
from visualizers.shared.style import empty_figure, escape, mark_position, run_mark, token_label
from visualizers.shared.token_lines import (
    RAW_AND_FINAL,
    Line,
    Lines,
    Point,
    line_trace,
    lines_min_width,
    position_axis,
    token_lines,
)


def needs(trace: Trace) -> bool:
    """Whether the probability of the text's first token was captured."""
    return any(step.raw is not None for step in best_path(trace)[:1])


@view("cumulative", title="Cumulative log-probability", order=30, needs=needs)
def cumulative(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Log-probability of the text up to each token: filled markers in the model's own distribution,
    open markers after the logits processors.

    The highest line is the text that the model itself finds most probable. A line ends before a
    token that was not captured or that a processor had cut.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    """The running sums; None from the first unknown value on."""
    lines = (_summed(line) for line in token_lines(traces, _log_probabilities).lines)
    return Lines(tuple(line for line in lines if line.points and line.points[0].raw is not None))


def _log_probabilities(step: Step) -> tuple[float | None, float | None]:
    return step.raw, step.final


def _summed(line: Line) -> Line:
    raw = _running_sum(point.raw for point in line.points)
    final = _running_sum(point.final for point in line.points)
    points = [
        point._replace(
            raw=raw[index] if index < len(raw) else None,
            final=final[index] if index < len(final) else None,
        )
        for index, point in enumerate(line.points)
    ]
    return line._replace(points=tuple(points))


def _running_sum(values: Iterable[float | None]) -> list[float]:
    known = takewhile(lambda value: value is not None, values)
    return [*accumulate(value for value in known if value is not None)]


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    figure = empty_figure(RAW_AND_FINAL, "token", "log-probability so far (nats)")
    for line in info.lines:
        hovers = [_hover(line, index) for index in range(len(line.points))]
        figure.add_trace(line_trace(line, [point.raw for point in line.points], hovers))
        if any(map(_differs, line.points)):
            figure.add_trace(_final_line(line, hovers))
    figure.update_layout(meta=lines_min_width(info.lines))
    figure.update_xaxes(position_axis(info.lines))
    return mark_position(figure, at)


def _differs(point: Point) -> bool:
    if point.final is None or point.raw is None:
        return point.final is not point.raw
    return not math.isclose(point.final, point.raw, abs_tol=1e-4)


def _final_line(line: Line, hovers: Sequence[str]) -> go.Scatter:
    mark = run_mark(line.run)
    dotted = line_trace(line, [point.final for point in line.points], hovers)
    return dotted.update(
        line={"width": 1.5, "dash": "dot"},
        marker={"symbol": f"{mark.symbol}-open", "size": mark.size + 1},
        showlegend=False,
    )


def _hover(line: Line, index: int) -> str:
    point = line.points[index]
    since = f" since token {line.first}" if line.first > 1 else ""
    return "<br>".join(
        [
            f"<b>{token_label(point.token)}</b>  token {line.positions[index]}",
            f"model: {_sum(point.raw, index + 1)}{since}",
            f"after processors: {_sum(point.final, index + 1)}{since}",
            escape(line.label),
        ]
    )


def _sum(value: float | None, tokens: int) -> str:
    if value is None:
        return "unknown: a token was cut or not captured"
    return f"{value:.2f} nats, {value / tokens:.2f} per token"
