"""DoLa: how far each early layer is from the final one, and which layer was contrasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import (
    TokenAxis,
    category_axis,
    color_axis,
    label_tokens,
    outline,
    panel_title,
    stacked_panels,
    step_index,
    token_axis,
)
from visualizers.shared.runs import best_path, labels

_ROW = 30  # pixels


class LayerDivergences(NamedTuple):
    """One text: the early layers in order, their divergences at each token, and the layer that was
    contrasted there; ``highlighted`` is the index of a token."""

    label: str
    axis: TokenAxis
    layers: tuple[int, ...]
    divergences: tuple[tuple[float, ...], ...]  # (layers, tokens)
    contrasted: tuple[int, ...]
    highlighted: int | None


class Texts(NamedTuple):
    """What the figure shows."""

    texts: tuple[LayerDivergences, ...]


def needs(trace: Trace) -> bool:
    """Whether every step recorded the divergences of the layers."""
    return bool(trace.steps) and all("divergences" in step.notes for step in trace.steps)


@view("dola_layers", title="DoLa: layers", tab="strategy", order=50, needs=needs)
def dola_layers(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Divergence between the distributions of each early layer and the final layer at each token.
    DoLa contrasts with the layer that diverges most, marked by a diamond.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Texts:
    named = zip(traces, labels(traces), strict=True)
    return Texts(tuple(_divergences(trace, label, at) for trace, label in named if needs(trace)))


def _divergences(trace: Trace, label: str, at: int | None) -> LayerDivergences:
    path = best_path(trace)
    layers = sorted(map(int, path[0].notes["divergences"]))
    return LayerDivergences(
        label,
        token_axis(trace, path),
        tuple(layers),
        tuple(tuple(step.notes["divergences"][str(layer)] for step in path) for layer in layers),
        tuple(step.notes["layer"] for step in path),
        None if at is None else step_index(trace, path, at),
    )


def _figure(info: Texts) -> go.Figure:
    heights = [max(90, _ROW * len(text.layers)) for text in info.texts]
    subtitle = "divergence from the final layer (nats)"
    figure = stacked_panels(subtitle, "token", "early layer", heights, bottom=190)
    label_tokens(figure, [text.axis for text in info.texts])
    for row, text in enumerate(info.texts, start=1):
        figure.add_trace(_heatmap(text), row=row, col=1)
        figure.add_trace(_contrasted_markers(text, in_legend=row == 1), row=row, col=1)
        figure.update_yaxes(category_axis([str(layer) for layer in text.layers]), row=row)
        figure.add_annotation(panel_title(row, text.label))
        if text.highlighted is not None:
            position = text.axis.first + text.highlighted
            outline(figure, row, (position - 0.5, position + 0.5), None)
    figure.update_layout(
        coloraxis=color_axis("divergence (nats)"), legend={"x": 1, "xanchor": "right"}
    )
    return figure


def _heatmap(text: LayerDivergences) -> go.Heatmap:
    return go.Heatmap(
        x=text.axis.positions,
        y=list(range(len(text.layers))),
        z=[list(row) for row in text.divergences],
        text=[
            [_hover(text, level, index) for index in range(len(row))]
            for level, row in enumerate(text.divergences)
        ],
        hoverinfo="text",
        coloraxis="coloraxis",
        **{"xgap": 1, "ygap": 1},
    )


def _hover(text: LayerDivergences, level: int, index: int) -> str:
    layer = text.layers[level]
    contrasted = ", contrasted" if layer == text.contrasted[index] else ""
    token = style.token_label(text.axis.tokens[index])
    return "<br>".join(
        [
            f"<b>{token}</b> (token {text.axis.first + index})",
            f"layer {layer}{contrasted}",
            f"divergence: {text.divergences[level][index]:.2f} nats",
        ]
    )


def _contrasted_markers(text: LayerDivergences, *, in_legend: bool) -> go.Scatter:
    return go.Scatter(
        x=text.axis.positions,
        y=[text.layers.index(layer) for layer in text.contrasted],
        mode="markers",
        marker={
            **{"symbol": "diamond", "size": 11, "color": "white"},
            "line": {"color": "black", "width": 1.5},
        },
        hoverinfo="skip",
        name="contrasted layer",
        showlegend=in_legend,
    )
