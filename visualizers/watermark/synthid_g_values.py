"""SynthID's g-values: one bit per token and layer of the tournament."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import category_axis

MAX_TOKENS = 400


class GValues(NamedTuple):
    """What the figure shows: the g-values of each layer, None where a token was not scored."""

    tokens: tuple[str, ...]
    by_layer: tuple[tuple[int | None, ...], ...]
    means: tuple[float, ...]
    omitted: int  # tokens after the first MAX_TOKENS


def needs(detection: Detection) -> bool:
    """Whether the detection has g-values."""
    return detection.layers is not None


@view(
    "synthid_g_values",
    title="SynthID g-values",
    tab="detect",
    order=30,
    input=Detection,
    needs=needs,
)
def synthid_g_values(detection: Detection) -> go.Figure:
    """The g-values of each token, layer by layer: blue is 1, grey is 0, a gap is not scored.
    Without a watermark 0 and 1 are equally frequent; a watermarked text has more ones. The number
    beside each layer is its mean over the whole text.
    """
    return _figure(_info(detection))


def _info(detection: Detection) -> GValues:
    means = detection.layers.by_layer if detection.layers else ()
    shown = detection.tokens[:MAX_TOKENS]
    rows = [
        token.g_values if token.verdict != "unscored" and token.g_values else (None,) * len(means)
        for token in shown
    ]
    return GValues(
        tuple(token.text for token in shown),
        tuple(zip(*rows, strict=True)) if rows else (),
        means,
        len(detection.tokens) - len(shown),
    )


def _figure(info: GValues) -> go.Figure:
    first = f" · first {MAX_TOKENS} tokens" if info.omitted else ""
    subtitle = f"blue: 1 · grey: 0 · gap: not scored{first}"
    figure = style.empty_figure(subtitle, "token", "layer · mean")
    layers = len(info.by_layer)
    figure.update_layout(height=200 + 22 * max(layers, 3))
    if not info.means:
        return style.with_message(figure, "No token could be scored.")
    figure.add_trace(
        go.Heatmap(
            z=[list(row) for row in info.by_layer],
            x=list(range(1, len(info.tokens) + 1)),
            zmin=0,
            zmax=1,
            colorscale=[[0, "rgba(128,128,128,0.3)"], [1, style.BLUE]],
            showscale=False,
            xgap=1 if len(info.tokens) <= 120 else 0,
            ygap=1,
            customdata=[[style.token_label(token) for token in info.tokens]] * layers,
            hovertemplate="<b>%{customdata}</b><br>layer %{y}<br>g-value %{z}<extra></extra>",
            hoverongaps=False,
        )
    )
    names = [f"{number} · {mean:.2f}" for number, mean in enumerate(info.means, start=1)]
    figure.update_yaxes(**category_axis(names))
    # The first layer has the most weight, so it is at the top.
    figure.update_yaxes(autorange="reversed", range=None)
    return figure
