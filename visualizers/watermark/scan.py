"""Where in a text a marked passage stands.

Knows windows over a detection and the most unusual passage. Refuses to judge tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from engine.watermark.windows import Scan, Window, slide
from visualizers._shared import style as style

MOST = 1_500  # windows that are drawn; of a longer text every so manieth
_NARROW, _WIDE = 8, 64  # tokens of a window where the passage itself gives none


class Passages(NamedTuple):
    """What the figure shows; places are counted from 0."""

    windows: tuple[Window, ...]
    width: int  # scored tokens in each
    threshold: float
    best: tuple[int, int] | None
    best_z: float
    found: bool


def watermark_scan(detection: Detection, scan: Scan) -> go.Figure:
    """The z-score of a window that slides over the text, at the window's middle; the most unusual
    passage is framed, whether or not it is unusual enough.

    Only first draws count, as a repeated n-gram says nothing new.
    """
    return _figure(_info(detection, scan))


def _info(detection: Detection, scan: Scan) -> Passages:
    best = scan.best
    if best is None:
        return Passages((), 0, detection.z_threshold, None, 0.0, False)
    there = detection.independent.tokens_scored
    alone = best.tokens_scored <= there / 2
    width = best.tokens_scored if alone else min(there, max(_NARROW, min(_WIDE, there // 4)))
    windows = slide(detection, width)
    every = max(1, -(-len(windows) // MOST))
    place = (best.start, best.end)
    threshold = detection.z_threshold
    return Passages(windows[::every], width, threshold, place, best.z_score, scan.found)


def _figure(info: Passages) -> go.Figure:
    told = "framed: the most unusual passage · dashed: the threshold"
    figure = style.blank("Windows over the text", told, "token", "z-score of a window")
    figure.update_layout(height=340, showlegend=False, meta=style.at_least(320))
    if info.best is None:
        return style.said(figure, "no token could be scored")
    figure.add_hline(0, line={"color": style.GRID, "width": 1})
    figure.add_hline(info.threshold, line={"color": style.VERMILLION, "width": 1.5, "dash": "dash"})
    start, end = info.best
    figure.add_vrect(
        *(start + 0.5, end + 0.5),
        fillcolor=style.GREEN if info.found else style.QUIET,
        opacity=0.18,
        line={"color": style.INK, "width": 1.5, "dash": "solid" if info.found else "dot"},
        layer="below",
    )
    figure.add_trace(
        go.Scatter(
            x=[(window.start + window.end + 1) / 2 for window in info.windows],
            y=[window.z_score for window in info.windows],
            hovertext=[_hover(window, info.width) for window in info.windows],
            hoverinfo="text",
            mode="lines" if len(info.windows) > 1 else "markers",
            line={"color": style.BLUE, "width": 2},
            cliponaxis=False,
        )
    )
    return figure


def _hover(window: Window, width: int) -> str:
    places = f"tokens {window.start + 1} to {window.end}, {width} of them scored"
    return f"z: {window.z_score:.2f}<br>{places}"
