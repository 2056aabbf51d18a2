"""The z-score of a text as it grows."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from engine.watermark.windows import over_length
from visualizers.registry import view
from visualizers.shared import style

MAX_POINTS = 1_500  # longer texts are thinned out


class LengthPoint(NamedTuple):
    """The score of the text up to one token."""

    scored: int
    green: int
    z: float
    token: str


class ScoreByLength(NamedTuple):
    """What the figure shows."""

    points: tuple[LengthPoint, ...]
    threshold: float


@view("watermark_length", title="z-score by length", tab="detect", order=10, input=Detection)
def watermark_length(detection: Detection) -> go.Figure:
    """The z-score of the text up to each scored token; the dashed line is the threshold.

    The score of a watermarked text grows with the square root of its length; without a watermark it
    stays near 0.
    """
    return _figure(_info(detection))


def _info(detection: Detection) -> ScoreByLength:
    scores = over_length(detection)
    every = max(1, -(-len(scores) // MAX_POINTS))
    shown = [*scores[::every], *(scores[-1:] if (len(scores) - 1) % every else ())]
    return ScoreByLength(
        tuple(
            LengthPoint(
                score.tokens_scored,
                score.green_tokens,
                score.z_score,
                detection.tokens[score.position].text,
            )
            for score in shown
        ),
        detection.z_threshold,
    )


def _figure(info: ScoreByLength) -> go.Figure:
    figure = style.empty_figure("dashed: threshold", "tokens scored", "z-score")
    figure.update_layout(height=340, showlegend=False)
    if not info.points:
        return style.with_message(figure, "No token could be scored.")
    figure.add_hline(0, line={"color": style.GRID, "width": 1})
    figure.add_hline(info.threshold, line={"color": style.VERMILLION, "width": 1.5, "dash": "dash"})
    figure.add_trace(
        go.Scatter(
            x=[point.scored for point in info.points],
            y=[point.z for point in info.points],
            hovertext=[_hover(point) for point in info.points],
            hoverinfo="text",
            mode="lines" if len(info.points) > 1 else "markers",
            line={"color": style.BLUE, "width": 2},
            cliponaxis=False,
        )
    )
    figure.update_xaxes(style.integer_axis(1, info.points[-1].scored))
    return figure


def _hover(point: LengthPoint) -> str:
    counts = f"{point.green} of {point.scored} tokens green"
    return "<br>".join([f"<b>{style.token_label(point.token)}</b>", f"z: {point.z:.2f}", counts])
