"""What kind of uncertainty each token was chosen under.

Knows the entropy and the varentropy a step recorded. Refuses to compute either: that needs the
whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers.registry import view

# What the corners mean: (right of the median entropy, above the median varentropy).
CORNERS = {
    (False, False): "rather sure",
    (False, True): "a favourite far ahead",
    (True, False): "torn between equals",
    (True, True): "unsure, long tail",
}
_BELOW = 0.09  # of the axis, for the names of the lower corners


class Dot(NamedTuple):
    """One token: how much surprise the model expected before it, and how uneven that was."""

    at: int  # place in the text, from 0
    token: str
    entropy: float
    varentropy: float


class Cloud(NamedTuple):
    """One trace's tokens; its place in the comparison gives it colour and marker."""

    place: int
    label: str
    dots: tuple[Dot, ...]


class Clouds(NamedTuple):
    """What the figure shows; the medians are those of all dots together."""

    clouds: tuple[Cloud, ...]
    median_entropy: float | None
    median_varentropy: float | None


def needs(trace: Trace) -> bool:
    """A trace that recorded how uneven the surprise was for a token of its text."""
    return any(_recorded(step) for step in best_path(trace))


@view("varentropy", title="Kinds of uncertainty", order=25, needs=needs)
def varentropy(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Each token by how undecided the model was before it (entropy) and by how unevenly its
    alternatives shared the doubt (varentropy); the guides are the medians of all tokens shown.

    Near-equal alternatives have entropy without varentropy; a favourite before a long tail of
    improbable tokens has much of it.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Clouds:
    named = enumerate(zip(style.labels(traces), traces, strict=True))
    clouds = tuple(
        Cloud(place, label, _dots(trace)) for place, (label, trace) in named if needs(trace)
    )
    dots = [dot for cloud in clouds for dot in cloud.dots]
    if not dots:
        return Clouds((), None, None)
    return Clouds(
        clouds, median(dot.entropy for dot in dots), median(dot.varentropy for dot in dots)
    )


def _recorded(step: Step) -> tuple[float, float] | None:
    given = step.distribution
    if given is None or given.raw_varentropy is None:
        return None
    return given.raw_entropy, given.raw_varentropy


def _dots(trace: Trace) -> tuple[Dot, ...]:
    path = enumerate(best_path(trace), start=len(trace.prefix))
    return tuple(
        Dot(at, step.token.text, *recorded) for at, step in path if (recorded := _recorded(step))
    )


def _figure(info: Clouds, at: int | None = None) -> go.Figure:
    words = ("Kinds of uncertainty", "dashed: the medians of all tokens shown")
    figure = style.blank(*words, "entropy (nats)", "varentropy (nats²)")
    dots = [(cloud, dot) for cloud in info.clouds for dot in cloud.dots]
    figure.add_traces([_cloud(cloud) for cloud in info.clouds])
    figure.add_traces([_ring(cloud, dot) for cloud, dot in dots if dot.at == at])
    # The upper corners' names stand between the words above and the dots.
    figure.update_layout(height=560, margin={"t": 105}, meta=style.at_least(360))
    figure.update_xaxes(range=_range([dot.entropy for _, dot in dots], 0.03))
    figure.update_yaxes(range=_range([dot.varentropy for _, dot in dots], _BELOW))
    if info.median_entropy is not None:
        guide = {"color": style.QUIET, "width": 1.5, "dash": "dash"}
        figure.add_vline(info.median_entropy, line=guide)
        figure.add_hline(info.median_varentropy, line=guide)
        figure.update_layout(annotations=[_corner(right, above) for right, above in CORNERS])
    return figure


def _range(values: Sequence[float], below: float) -> list[float]:
    """From a little below 0, which is where the sure ones gather, to a little above the largest."""
    largest = max(values, default=0) or 1
    return [-below * largest, 1.05 * largest]


def _corner(right: bool, above: bool) -> dict[str, Any]:
    """A corner's name: above all dots or in the strip below them."""
    return {
        "text": f"<i>{CORNERS[right, above]}</i>",
        "showarrow": False,
        **{"xref": "x domain", "x": int(right), "xanchor": "right" if right else "left"},
        **{"yref": "y domain", "y": int(above), "yanchor": "bottom"},
    }


def _cloud(cloud: Cloud) -> go.Scatter:
    mark = style.trace_mark(cloud.place)
    return go.Scatter(
        x=[dot.entropy for dot in cloud.dots],
        y=[dot.varentropy for dot in cloud.dots],
        hovertext=[_hover(dot, cloud.label) for dot in cloud.dots],
        hoverinfo="text",
        mode="markers",
        marker={
            "symbol": mark.symbol,
            "color": mark.colour,
            "size": mark.size + 1,
            "opacity": 0.7,
        },
        name=style.escape(cloud.label),
        legendgroup=str(cloud.place),
        cliponaxis=False,
        showlegend=True,
    )


def _ring(cloud: Cloud, dot: Dot) -> go.Scatter:
    """A circle around the token that is pointed out."""
    return go.Scatter(
        x=[dot.entropy],
        y=[dot.varentropy],
        mode="markers",
        marker={"symbol": "circle-open", "color": style.INK, "size": 18, "line": {"width": 2.5}},
        hoverinfo="skip",
        legendgroup=str(cloud.place),
        cliponaxis=False,
        showlegend=False,
    )


def _hover(dot: Dot, label: str) -> str:
    return "<br>".join(
        [
            f"<b>{style.spelled(dot.token)}</b>  token {dot.at + 1}",
            f"entropy: {dot.entropy:.2f} nats",
            f"varentropy: {dot.varentropy:.2f} nats²",
            style.escape(label),
        ]
    )
