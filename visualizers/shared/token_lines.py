"""Lines along the tokens: one value per token and run, raw and after the logits processors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.shared.runs import best_path, labels
from visualizers.shared.style import (
    empty_figure,
    escape,
    integer_axis,
    mark_position,
    min_width,
    run_mark,
    token_label,
)

RAW_AND_FINAL = "filled: the model's own · open: after the processors"
NOT_CAPTURED = "not captured"


class Point(NamedTuple):
    """One token; ``raw`` is None where it was not captured, ``final`` also where a processor cut
    the token."""

    token: str
    raw: float | None
    final: float | None
    rank: int | None
    kept: int | None
    event: str


class Line(NamedTuple):
    """One run; its number in the comparison gives it colour and marker.

    ``first`` is the position of its first token, counted from 1: a run that continues a text starts
    after that text.
    """

    run: int
    label: str
    points: tuple[Point, ...]
    first: int = 1

    @property
    def positions(self) -> range:
        """The token positions of the points, counted from 1."""
        return range(self.first, self.first + len(self.points))


class Lines(NamedTuple):
    """What the figure shows."""

    lines: tuple[Line, ...]


Values = Callable[[Step], tuple[float | None, float | None]]
Format = Callable[[float], str]


def token_lines(traces: Sequence[Trace], values: Values) -> Lines:
    """The raw and the final value of every step of each trace's best sequence."""
    return Lines(
        tuple(
            Line(
                index,
                label,
                tuple(_point(step, values) for step in best_path(trace)),
                len(trace.prefix) + 1,
            )
            for index, (label, trace) in enumerate(zip(labels(traces), traces, strict=True))
            if trace.steps
        )
    )


def probabilities(step: Step) -> tuple[float | None, float | None]:
    """The token's probability in the model's distribution and in the one it was chosen from."""
    return step.probability, step.used


def _point(step: Step, values: Values) -> Point:
    raw, final = values(step)
    kept = step.distribution.kept if step.distribution else None
    return Point(step.token.text, raw, final, step.rank, kept, step.event)


def draw_lines(info: Lines, y_title: str, format: Format, at: int | None = None) -> go.Figure:
    """Solid lines through the raw values, and dotted stems to the final ones that differ."""
    figure = empty_figure(RAW_AND_FINAL, "token", y_title)
    for line in info.lines:
        figure.add_trace(_raw_line(line, format))
        if any(map(_changed, line.points)):
            figure.add_trace(_final_stems(line, format))
    figure.update_layout(meta=lines_min_width(info.lines))
    figure.update_xaxes(position_axis(info.lines))
    return mark_position(figure, at)


def position_axis(lines: Sequence[Line]) -> dict[str, Any]:
    """Settings of an axis of token positions."""
    return integer_axis(1, _last_position(lines))


def lines_min_width(lines: Sequence[Line]) -> dict[str, int]:
    """The minimal width of a figure of the lines."""
    return min_width(180 + 8 * _last_position(lines))


def _last_position(lines: Sequence[Line]) -> int:
    return max((line.positions.stop - 1 for line in lines), default=1)


def _changed(point: Point) -> bool:
    if point.raw is None:
        return point.final is not None
    return point.final is None or not math.isclose(point.final, point.raw, abs_tol=1e-6)


def _raw_line(line: Line, format: Format) -> go.Scatter:
    hovers = [_hover(point, line.label, format) for point in line.points]
    return line_trace(line, [point.raw for point in line.points], hovers)


def line_trace(line: Line, values: Sequence[float | None], hovers: Sequence[str]) -> go.Scatter:
    """A line of one value per token in the run's colour and marker; None leaves a gap."""
    mark = run_mark(line.run)
    return go.Scatter(
        x=list(line.positions),
        y=list(values),
        hovertext=list(hovers),
        hoverinfo="text",
        mode="lines+markers",
        line={"color": mark.colour, "width": 2},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
        name=escape(line.label),
        legendgroup=str(line.run),
        cliponaxis=False,
        showlegend=True,
    )


def _final_stems(line: Line, format: Format) -> go.Scatter:
    """One stem per token: the raw value without a marker, an open marker, a gap."""
    mark = run_mark(line.run)
    stems = [*zip(line.positions, line.points, strict=True)]
    return go.Scatter(
        x=[x for position, _ in stems for x in (position, position, None)],
        y=[y for _, point in stems for y in (point.raw, point.final, None)],
        hovertext=[
            text for _, point in stems for text in ("", _hover(point, line.label, format), "")
        ],
        hoverinfo="text",
        mode="lines+markers",
        line={"color": mark.colour, "width": 1.5, "dash": "dot"},
        marker={
            "symbol": f"{mark.symbol}-open",
            "color": mark.colour,
            "size": [0, mark.size + 3, 0] * len(stems),
            "opacity": 1,
        },
        legendgroup=str(line.run),
        cliponaxis=False,
        showlegend=False,
    )


def _hover(point: Point, label: str, format: Format) -> str:
    head = f"<b>{token_label(point.token)}</b>  {escape(point.event)}"
    if point.raw is None and point.final is None:
        return "<br>".join([head, NOT_CAPTURED, escape(label)])
    raw = NOT_CAPTURED if point.raw is None else format(point.raw)
    final = "cut" if point.final is None else format(point.final)
    details = [
        *([] if point.rank is None else [f"rank {point.rank}"]),
        *([] if point.kept is None else [f"{point.kept:,} tokens kept"]),
    ]
    lines = [head, f"model: {raw}", f"after processors: {final}", " · ".join(details)]
    return "<br>".join([*filter(None, lines), escape(label)])
