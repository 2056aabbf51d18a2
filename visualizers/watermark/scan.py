"""The z-score of a window that slides over a text, and its most significant passage."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from engine.watermark.detection import Detection
from engine.watermark.windows import Scan, Window, slide
from visualizers.registry import view
from visualizers.shared import style

MAX_WINDOWS = 1_500  # longer texts are thinned out
_NARROWEST, _WIDEST = 8, 64  # tokens of a window if the passage covers most of the text


class ScannedText(NamedTuple):
    """A detection and the scan of its windows."""

    detection: Detection
    scan: Scan


class Windows(NamedTuple):
    """What the figure shows; positions count from 0."""

    windows: tuple[Window, ...]
    width: int  # scored tokens in each
    threshold: float
    best: tuple[int, int] | None
    best_z: float
    significant: bool


@view("watermark_scan", title="Windows over the text", tab="detect", order=20, input=ScannedText)
def watermark_scan(text: ScannedText) -> go.Figure:
    """The z-score of a sliding window, at the window's centre. The most significant passage is
    framed, whether or not it is significant enough.

    A repeated n-gram is counted once, as it adds no evidence.
    """
    return _figure(_info(text))


def _info(text: ScannedText) -> Windows:
    detection, best = text.detection, text.scan.best
    if best is None:
        return Windows((), 0, detection.z_threshold, None, 0.0, False)
    scored = detection.independent.tokens_scored
    width = best.tokens_scored
    if width > scored / 2:
        width = min(scored, max(_NARROWEST, min(_WIDEST, scored // 4)))
    windows = slide(detection, width)
    every = max(1, -(-len(windows) // MAX_WINDOWS))
    return Windows(
        windows[::every],
        width,
        detection.z_threshold,
        (best.start, best.end),
        best.z_score,
        text.scan.found,
    )


def _figure(info: Windows) -> go.Figure:
    subtitle = "framed: most significant passage · dashed: threshold"
    figure = style.empty_figure(subtitle, "token", "z-score of a window")
    figure.update_layout(height=340, showlegend=False)
    if info.best is None:
        return style.with_message(figure, "No token could be scored.")
    figure.add_hline(0, line={"color": style.GRID, "width": 1})
    figure.add_hline(info.threshold, line={"color": style.VERMILLION, "width": 1.5, "dash": "dash"})
    start, end = info.best
    figure.add_vrect(
        *(start + 0.5, end + 0.5),
        fillcolor=style.GREEN if info.significant else style.MUTED,
        opacity=0.18,
        line={"color": style.INK, "width": 1.5, "dash": "solid" if info.significant else "dot"},
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
    tokens = f"tokens {window.start + 1} to {window.end}, {width} of them scored"
    return f"z: {window.z_score:.2f}<br>{tokens}"
