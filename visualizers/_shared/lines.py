"""Numbers per step, before and after the processors, as one line per trace.

Knows paths through traces and how their lines are drawn. Refuses to know which number it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared.style import (
    at_least,
    blank,
    counted,
    escape,
    labels,
    pointed,
    spelled,
    trace_mark,
)

LOST = frozenset({"pruned", "rejected"})
FILLED_AND_OPEN = "filled: the model's own · open: as finally used"


class Point(NamedTuple):
    """One step of a line; ``final`` is None where a processor had cut the token, everything where
    nobody saw."""

    token: str
    raw: float | None
    final: float | None
    rank: int | None
    kept: int | None
    event: str


class Line(NamedTuple):
    """One trace; its place in the comparison gives it colour and marker.

    ``first`` is where in the text its first token stands: a run that goes on from a text that was
    there begins after it.
    """

    place: int
    label: str
    points: tuple[Point, ...]
    first: int = 1

    @property
    def places(self) -> range:
        """Where in the text the points stand, counted from 1."""
        return range(self.first, self.first + len(self.points))


class Lines(NamedTuple):
    """What the figure shows."""

    lines: tuple[Line, ...]


Measure = Callable[[Step], tuple[float | None, float | None]]
Number = Callable[[float], str]


def measured(traces: Sequence[Trace], measure: Measure) -> Lines:
    """The raw and the final number of every step that led to each trace's best sequence."""
    named = enumerate(zip(labels(traces), traces, strict=True))
    return Lines(
        tuple(
            Line(
                place,
                label,
                tuple(_point(step, measure) for step in best_path(trace)),
                len(trace.prefix) + 1,
            )
            for place, (label, trace) in named
            if trace.steps
        )
    )


def best_path(trace: Trace) -> tuple[Step, ...]:
    """The best sequence's steps; if nothing was returned, the longest path not given up."""
    if trace.sequences:
        return tuple(trace.steps[id] for id in trace.sequences[0].steps)
    depth: dict[int | None, int] = {None: 0}
    for step in trace.steps:
        depth[step.id] = depth[step.parent] + 1
    alive = [step.id for step in trace.steps if step.event not in LOST]
    return trace.path(max(alive, key=lambda id: depth[id], default=None))


def _point(step: Step, measure: Measure) -> Point:
    raw, final = measure(step)
    kept = step.distribution.kept if step.distribution else None
    return Point(step.token.text, raw, final, step.rank, kept, step.event)


def drawn(
    info: Lines, title: str, y_title: str, number: Number, at: int | None = None
) -> go.Figure:
    """Solid lines as the model gave it, and dotted stems to what was finally used if it differs."""
    figure = blank(title, FILLED_AND_OPEN, "token", y_title)
    for line in info.lines:
        figure.add_trace(_raw(line, number))
        if any(map(_changed, line.points)):
            figure.add_trace(_final(line, number))
    figure.update_layout(meta=room(info.lines))
    figure.update_xaxes(along(info.lines))
    return pointed(figure, at)


def along(lines: Sequence[Line]) -> dict[str, Any]:
    """The settings of an axis that runs along the texts."""
    return counted(1, _last(lines))


def room(lines: Sequence[Line]) -> dict[str, int]:
    """What ``layout.meta`` tells a page about a figure of the lines."""
    return at_least(180 + 8 * _last(lines))


def _last(lines: Sequence[Line]) -> int:
    return max((line.places.stop - 1 for line in lines), default=1)


def _changed(point: Point) -> bool:
    if point.raw is None:
        return False
    return point.final is None or not math.isclose(point.final, point.raw, abs_tol=1e-6)


def _raw(line: Line, number: Number) -> go.Scatter:
    hovers = [_hover(point, line.label, number) for point in line.points]
    return solid(line, [point.raw for point in line.points], hovers)


def solid(line: Line, values: Sequence[float | None], hovers: Sequence[str]) -> go.Scatter:
    """One value per token of a line, in its trace's colour and mark; None leaves a gap."""
    mark = trace_mark(line.place)
    return go.Scatter(
        x=list(line.places),
        y=list(values),
        hovertext=list(hovers),
        hoverinfo="text",
        mode="lines+markers",
        line={"color": mark.colour, "width": 2},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
        name=escape(line.label),
        legendgroup=str(line.place),
        cliponaxis=False,
        showlegend=True,
    )


def _final(line: Line, number: Number) -> go.Scatter:
    """A stem per token: from the model's number, unmarked, to an open marker, and a gap."""
    mark = trace_mark(line.place)
    stems = [*zip(line.places, line.points, strict=True)]
    return go.Scatter(
        x=[x for place, _ in stems for x in (place, place, None)],
        y=[y for _, point in stems for y in (point.raw, point.final, None)],
        hovertext=[
            text for _, point in stems for text in ("", _hover(point, line.label, number), "")
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
        legendgroup=str(line.place),
        cliponaxis=False,
        showlegend=False,
    )


def _hover(point: Point, label: str, number: Number) -> str:
    head = f"<b>{spelled(point.token)}</b>  {escape(point.event)}"
    if point.raw is None:
        return "<br>".join([head, "not captured", escape(label)])
    final = "cut" if point.final is None else number(point.final)
    numbers = [f"model: {number(point.raw)}", f"as used: {final}"]
    return "<br>".join(
        [head, *numbers, f"rank {point.rank} · {point.kept:,} tokens kept", escape(label)]
    )
