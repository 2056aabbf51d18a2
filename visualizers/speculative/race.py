"""A race of drafters on one clock: tokens written over time.

Knows when tokens arrived. Refuses to know who drafted, and to race runs that shared their passes:
whoever asks had each run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import arrivals
from visualizers._shared import style as style


class Lane(NamedTuple):
    """One run: how many tokens there were after so many seconds."""

    place: int
    label: str
    seconds: tuple[float, ...]

    @property
    def pace(self) -> float | None:
        """Tokens a second over the whole run."""
        return len(self.seconds) / self.seconds[-1] if self.seconds and self.seconds[-1] else None


class Lanes(NamedTuple):
    """What the figure shows."""

    lanes: tuple[Lane, ...]


def needs(trace: Trace) -> bool:
    """A run that wrote something."""
    return bool(trace.sequences and trace.sequences[0].steps)


def speculative_race(
    traces: Sequence[Trace], names: Sequence[str] | None = None, until: float | None = None
) -> go.Figure:
    """How many tokens each run had written after so many seconds: a step is a round's tokens, which
    arrive together. ``until`` cuts the clock off, for a replay."""
    return _figure(_info(traces, names), until)


def _info(traces: Sequence[Trace], names: Sequence[str] | None = None) -> Lanes:
    named = enumerate(zip(traces, names or style.labels(traces), strict=True))
    return Lanes(
        tuple(
            Lane(place, name, tuple(max(0.0, ms) / 1000 for ms in arrivals(trace)))
            for place, (trace, name) in named
            if needs(trace)
        )
    )


def _figure(info: Lanes, until: float | None = None) -> go.Figure:
    words = ("The race", "each ran alone; the clock starts when the prompt was read")
    figure = style.blank(*words, "seconds", "tokens written")
    for lane in info.lanes:
        figure.add_trace(_line(lane, until))
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(height=440, meta=style.at_least(360))
    return figure


def _line(lane: Lane, until: float | None) -> go.Scatter:
    mark = style.trace_mark(lane.place)
    shown = [at for at in lane.seconds if until is None or at <= until]
    pace = "" if lane.pace is None else f" · {lane.pace:.1f} tokens/s"
    return go.Scatter(
        x=[0.0, *shown],
        y=list(range(len(shown) + 1)),
        mode="lines+markers",
        line={"color": mark.colour, "width": 2, "shape": "hv"},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size - 1},
        name=style.escape(lane.label + pace),
        hovertemplate=f"{style.escape(lane.label)}<br>%{{y}} tokens after %{{x:.2f}} s"
        "<extra></extra>",
        showlegend=True,
    )
