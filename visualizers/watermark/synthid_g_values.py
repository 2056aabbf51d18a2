"""SynthID's coin flips: what each layer of the tournament gave each token.

Knows the g-values of a detection. Refuses to compute one.
"""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from visualizers._shared import style as style
from visualizers._shared.panels import leveled

MOST = 400  # tokens that are drawn


class Tosses(NamedTuple):
    """What the figure shows: one row of g-values per layer, None where a token was not scored."""

    tokens: tuple[str, ...]
    by_layer: tuple[tuple[int | None, ...], ...]
    means: tuple[float, ...]
    left_out: int


def synthid_g_values(detection: Detection) -> go.Figure:
    """The g-values of every token, layer by layer: blue is 1, grey is 0, and a gap was not scored.
    Chance gives as many of one as of the other; a marked text has more ones.

    Behind each layer stands the mean of its g-values in the whole text.
    """
    return _figure(_info(detection))


def _info(detection: Detection) -> Tosses:
    depth = detection.chance.coins
    shown = detection.tokens[:MOST]
    rows = [
        token.g_values if token.verdict != "unscored" and token.g_values else (None,) * depth
        for token in shown
    ]
    return Tosses(
        tuple(token.text for token in shown),
        tuple(zip(*rows, strict=True)) if rows else (),
        detection.layers.by_layer if detection.layers else (),
        len(detection.tokens) - len(shown),
    )


def _figure(info: Tosses) -> go.Figure:
    first = f" · the first {MOST} tokens" if info.left_out else ""
    told = f"blue: 1 · grey: 0 · gap: not scored{first}"
    figure = style.blank("g-values", told, "token", "layer, and its mean")
    depth = len(info.by_layer)
    figure.update_layout(height=200 + 22 * max(depth, 3), meta=style.at_least(320))
    if not info.means:
        return style.said(figure, "no token could be scored")
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
            customdata=[[style.spelled(token) for token in info.tokens]] * depth,
            hovertemplate="<b>%{customdata}</b><br>layer %{y}<br>g-value %{z}<extra></extra>",
            hoverongaps=False,
        )
    )
    names = [f"{place} · {mean:.2f}" for place, mean in enumerate(info.means, start=1)]
    figure.update_yaxes(**leveled(names))
    # The first layer says most: it stands on top.
    figure.update_yaxes(autorange="reversed", range=None)
    return figure
