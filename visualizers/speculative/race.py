"""A race of drafters: tokens written over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import arrivals
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import labels


class Lane(NamedTuple):
    """One run: the time at which each of its tokens was there."""

    run: int
    label: str
    seconds: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float | None:
        """The speed over the whole run."""
        return len(self.seconds) / self.seconds[-1] if self.seconds and self.seconds[-1] else None


class Lanes(NamedTuple):
    """What the figure shows."""

    lanes: tuple[Lane, ...]


def needs(trace: Trace) -> bool:
    """Whether the run wrote any token."""
    return bool(trace.sequences and trace.sequences[0].steps)


# Not a figure of every comparison: the times of runs that share forward passes are not their own.
@view("speculative_race", title="Race", tab="race", needs=needs)
def speculative_race(traces: Sequence[Trace]) -> go.Figure:
    """Number of tokens each run had written after a time. All tokens of a round arrive together, so
    a line rises in steps.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Lanes:
    return Lanes(
        tuple(
            Lane(index, label, tuple(max(0.0, ms) / 1000 for ms in arrivals(trace)))
            for index, (trace, label) in enumerate(zip(traces, labels(traces), strict=True))
            if needs(trace)
        )
    )


def _figure(info: Lanes) -> go.Figure:
    subtitle = "one run at a time; time 0 is the end of the pass over the prompt"
    figure = style.empty_figure(subtitle, "seconds", "tokens written")
    for lane in info.lanes:
        figure.add_trace(_line(lane))
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(height=440)
    return figure


def _line(lane: Lane) -> go.Scatter:
    mark, label = style.run_mark(lane.run), style.escape(lane.label)
    speed = lane.tokens_per_second
    return go.Scatter(
        x=[0.0, *lane.seconds],
        y=list(range(len(lane.seconds) + 1)),
        mode="lines+markers",
        line={"color": mark.colour, "width": 2, "shape": "hv"},
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size - 1},
        name=label if speed is None else f"{label} · {speed:.1f} tokens/s",
        hovertemplate=f"{label}<br>%{{y}} tokens after %{{x:.2f}} s<extra></extra>",
        showlegend=True,
    )
