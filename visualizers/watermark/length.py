"""How the evidence for a mark grows with the text.

Knows the z-scores of a detection. Refuses to judge tokens and to know schemes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from engine.watermark.windows import over_length
from visualizers._shared import style as style

MOST = 1_500  # points that are drawn; of a longer text every so manieth


class Length(NamedTuple):
    """The score of the text up to one token."""

    scored: int
    green: int
    z: float
    token: str


class Lengths(NamedTuple):
    """What the figure shows."""

    points: tuple[Length, ...]
    threshold: float


def watermark_length(detection: Detection) -> go.Figure:
    """The z-score of the text so far, after every scored token; dashed is what is asked for.

    A mark adds up: its line climbs with the root of the length. Without one it stays near 0.
    """
    return _figure(_info(detection))


def _info(detection: Detection) -> Lengths:
    grown = over_length(detection)
    every = max(1, -(-len(grown) // MOST))
    kept = [*grown[::every], *(grown[-1:] if (len(grown) - 1) % every else ())]
    return Lengths(
        tuple(
            Length(
                point.tokens_scored,
                point.green_tokens,
                point.z_score,
                detection.tokens[point.position].text,
            )
            for point in kept
        ),
        detection.z_threshold,
    )


def _figure(info: Lengths) -> go.Figure:
    words = ("z-score over length", "dashed: the threshold")
    figure = style.blank(*words, "tokens scored", "z-score")
    figure.update_layout(height=340, showlegend=False, meta=style.at_least(320))
    if not info.points:
        return style.said(figure, "no token could be scored")
    figure.add_hline(0, line={"color": style.GRID, "width": 1})
    figure.add_hline(info.threshold, line=_THRESHOLD)
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
    figure.update_xaxes(style.counted(1, info.points[-1].scored))
    return figure


_THRESHOLD: dict[str, Any] = {"color": style.VERMILLION, "width": 1.5, "dash": "dash"}


def _hover(point: Length) -> str:
    counts = f"{point.green} of {point.scored} tokens green"
    return "<br>".join([f"<b>{style.spelled(point.token)}</b>", f"z: {point.z:.2f}", counts])
