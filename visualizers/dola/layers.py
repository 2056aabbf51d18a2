"""Which layer DoLa contrasted at every token, and how far from the final one each layer was.

Knows the divergences the run noted. Refuses to know what a layer said of any token:
`dola_candidates` has that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers._shared.panels import (
    Text,
    Words,
    headline,
    leveled,
    named,
    outlined,
    pinned,
    stacked,
    text_of,
    tinted,
    written,
)
from visualizers.registry import view

_ROW = 30  # pixels


class Layers(NamedTuple):
    """One text: the layers, lowest first, their divergences at each token, (layers, tokens), the
    layer contrasted there, and the column to point out, counted from 0."""

    label: str
    text: Text
    layers: tuple[int, ...]
    divergences: tuple[tuple[float, ...], ...]
    contrasted: tuple[int, ...]
    pinned: int | None


class Contrasts(NamedTuple):
    """What the figure shows."""

    texts: tuple[Layers, ...]


def needs(trace: Trace) -> bool:
    """A trace whose every step chose a layer."""
    return bool(trace.steps) and all("divergences" in step.notes for step in trace.steps)


@view("dola_layers", title="DoLa: layers", order=50, tab="why", needs=needs)
def dola_layers(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How much each earlier layer of the model would have said something else than the last one,
    token by token. At every token DoLa contrasts with the layer that differs most: the one with the
    diamond.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Contrasts:
    named_ones = zip(traces, style.labels(traces), strict=True)
    return Contrasts(tuple(_layers(trace, name, at) for trace, name in named_ones if needs(trace)))


def _layers(trace: Trace, label: str, at: int | None) -> Layers:
    path = best_path(trace)
    layers = sorted(map(int, path[0].notes["divergences"]))
    return Layers(
        label,
        text_of(trace, path),
        tuple(layers),
        tuple(tuple(step.notes["divergences"][str(layer)] for step in path) for layer in layers),
        tuple(step.notes["layer"] for step in path),
        None if at is None else pinned(trace, path, at),
    )


def _figure(info: Contrasts) -> go.Figure:
    words = Words(
        "DoLa: layers", "divergence from the final layer, in nats", "token", "early layer"
    )
    heights = [max(90, _ROW * len(each.layers)) for each in info.texts]
    figure = stacked(words, heights, bottom=190)
    written(figure, [each.text for each in info.texts])
    for row, each in enumerate(info.texts, start=1):
        figure.add_trace(_map(each), row=row, col=1)
        figure.add_trace(_marks(each, row), row=row, col=1)
        figure.update_yaxes(leveled([str(layer) for layer in each.layers]), row=row)
        figure.add_annotation(headline(named(each.label), row))
        if each.pinned is not None:
            place = each.text.first + each.pinned
            outlined(figure, row, (place - 0.5, place + 0.5), None)
    figure.update_layout(
        coloraxis=tinted("divergence (nats)"),
        legend={"x": 1, "xanchor": "right"},
    )
    return figure


def _map(each: Layers) -> go.Heatmap:
    return go.Heatmap(
        x=each.text.places,
        y=list(range(len(each.layers))),
        z=[list(row) for row in each.divergences],
        text=[
            [_hover(each, level, place) for place in range(len(row))]
            for level, row in enumerate(each.divergences)
        ],
        hoverinfo="text",
        coloraxis="coloraxis",
        **{"xgap": 1, "ygap": 1},
    )


def _hover(each: Layers, level: int, place: int) -> str:
    layer = each.layers[level]
    contrasted = ", contrasted with" if layer == each.contrasted[place] else ""
    return "<br>".join(
        [
            f"<b>{style.spelled(each.text.tokens[place])}</b> (token {each.text.first + place})",
            f"layer {layer}{contrasted}",
            f"divergence: {each.divergences[level][place]:.2f} nats",
        ]
    )


def _marks(each: Layers, row: int) -> go.Scatter:
    return go.Scatter(
        x=each.text.places,
        y=[each.layers.index(layer) for layer in each.contrasted],
        mode="markers",
        marker={
            **{"symbol": "diamond", "size": 11, "color": "white"},
            "line": {"color": "black", "width": 1.5},
        },
        hoverinfo="skip",
        name="layer contrasted with",
        showlegend=row == 1,
    )
