"""Entropy against varentropy: what kind of uncertainty each token was chosen under."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import best_path, labels

# The quadrants, by (above the median entropy, above the median varentropy).
QUADRANTS = {
    (False, False): "confident",
    (False, True): "one favourite",
    (True, False): "several equal options",
    (True, True): "long tail",
}
_STRIP = 0.09  # share of the axis below 0, for the names of the lower quadrants


class TokenPoint(NamedTuple):
    """One token and the entropy and varentropy of the model's distribution at it."""

    at: int  # position in the text, from 0
    token: str
    entropy: float
    varentropy: float


class Run(NamedTuple):
    """The tokens of one run; its number in the comparison gives it colour and marker."""

    number: int
    label: str
    points: tuple[TokenPoint, ...]


class Uncertainty(NamedTuple):
    """What the figure shows, and the medians over the tokens of all runs."""

    runs: tuple[Run, ...]
    median_entropy: float | None
    median_varentropy: float | None


def needs(trace: Trace) -> bool:
    """Whether the varentropy of any token of the text was recorded."""
    return any(_recorded(step) for step in best_path(trace))


@view("varentropy", title="Kinds of uncertainty", order=25, needs=needs)
def varentropy(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Entropy and varentropy of the model's distribution at each token. Entropy is the mean
    surprisal, varentropy its variance; the dashed lines are the medians of all tokens shown.

    Several equally probable tokens have high entropy and low varentropy; one probable token with a
    long tail of improbable ones has high varentropy.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Uncertainty:
    runs = tuple(
        Run(index, label, _points(trace))
        for index, (label, trace) in enumerate(zip(labels(traces), traces, strict=True))
        if needs(trace)
    )
    points = [point for run in runs for point in run.points]
    if not points:
        return Uncertainty((), None, None)
    return Uncertainty(
        runs,
        median(point.entropy for point in points),
        median(point.varentropy for point in points),
    )


def _recorded(step: Step) -> tuple[float, float] | None:
    found = step.distribution
    if found is None or found.raw_entropy is None or found.raw_varentropy is None:
        return None
    return found.raw_entropy, found.raw_varentropy


def _points(trace: Trace) -> tuple[TokenPoint, ...]:
    path = enumerate(best_path(trace), start=len(trace.prefix))
    return tuple(
        TokenPoint(at, step.token.text, *recorded)
        for at, step in path
        if (recorded := _recorded(step))
    )


def _figure(info: Uncertainty, at: int | None = None) -> go.Figure:
    subtitle = "dashed: medians of all tokens shown"
    figure = style.empty_figure(subtitle, "entropy (nats)", "varentropy (nats²)")
    points = [(run, point) for run in info.runs for point in run.points]
    figure.add_traces([_markers(run) for run in info.runs])
    figure.add_traces([_ring(run, point) for run, point in points if point.at == at])
    # The names of the upper quadrants are between the subtitle and the points.
    figure.update_layout(height=560, margin={"t": 105})
    figure.update_xaxes(range=_range([point.entropy for _, point in points], 0.03))
    figure.update_yaxes(range=_range([point.varentropy for _, point in points], _STRIP))
    if info.median_entropy is not None:
        guide = {"color": style.MUTED, "width": 1.5, "dash": "dash"}
        figure.add_vline(info.median_entropy, line=guide)
        figure.add_hline(info.median_varentropy, line=guide)
        figure.update_layout(annotations=[_quadrant(*position) for position in QUADRANTS])
    return figure


def _range(values: Sequence[float], below: float) -> list[float]:
    """From a little below 0, where confident tokens gather, to a little above the largest value."""
    largest = max(values, default=0) or 1
    return [-below * largest, 1.05 * largest]


def _quadrant(right: bool, above: bool) -> dict[str, Any]:
    """The name of a quadrant, above all points or in the strip below them."""
    return {
        "text": f"<i>{QUADRANTS[right, above]}</i>",
        "showarrow": False,
        **{"xref": "x domain", "x": int(right), "xanchor": "right" if right else "left"},
        **{"yref": "y domain", "y": int(above), "yanchor": "bottom"},
    }


def _markers(run: Run) -> go.Scatter:
    mark = style.run_mark(run.number)
    return go.Scatter(
        x=[point.entropy for point in run.points],
        y=[point.varentropy for point in run.points],
        hovertext=[_hover(point, run.label) for point in run.points],
        hoverinfo="text",
        mode="markers",
        marker={
            "symbol": mark.symbol,
            "color": mark.colour,
            "size": mark.size + 1,
            "opacity": 0.7,
        },
        name=style.escape(run.label),
        legendgroup=str(run.number),
        cliponaxis=False,
        showlegend=True,
    )


def _ring(run: Run, point: TokenPoint) -> go.Scatter:
    """A circle around the highlighted token."""
    return go.Scatter(
        x=[point.entropy],
        y=[point.varentropy],
        mode="markers",
        marker={"symbol": "circle-open", "color": style.INK, "size": 18, "line": {"width": 2.5}},
        hoverinfo="skip",
        legendgroup=str(run.number),
        cliponaxis=False,
        showlegend=False,
    )


def _hover(point: TokenPoint, label: str) -> str:
    return "<br>".join(
        [
            f"<b>{style.token_label(point.token)}</b>  token {point.at + 1}",
            f"entropy: {point.entropy:.2f} nats",
            f"varentropy: {point.varentropy:.2f} nats²",
            style.escape(label),
        ]
    )
