"""What is left of a watermark's score as an attack grows stronger.

Knows z-scores by strength and seed. Refuses to attack, to detect, and to draw a score that there is
none of: a text too short to score leaves a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style


class Point(NamedTuple):
    """One attack: how strong, from which seed, and the z-score after it."""

    strength: float
    seed: int
    z: float | None


class Info(NamedTuple):
    """What is drawn. Medians are over the seeds of a strength that left something to score."""

    points: tuple[Point, ...]
    medians: tuple[tuple[float, float], ...]
    before: float | None
    threshold: float


def attack_curve(
    title: str, strength: str, points: Sequence[Point], before: float | None, threshold: float
) -> go.Figure:
    """The z-score of a text over an attack's strength: a point for each seed, a line through their
    medians, and what it was before."""
    return _figure(_info(points, before, threshold), title, strength)


def _info(points: Sequence[Point], before: float | None, threshold: float) -> Info:
    scored: dict[float, list[float]] = {}
    for point in points:
        if point.z is not None:
            scored.setdefault(point.strength, []).append(point.z)
    medians = tuple((strength, median(scored[strength])) for strength in sorted(scored))
    return Info(tuple(points), medians, before, threshold)


def _figure(info: Info, title: str, strength: str) -> go.Figure:
    subtitle = "a point for each seed, a line through their medians"
    figure = style.blank(style.escape(title), subtitle, style.escape(strength), "z-score")
    drawn = [point for point in info.points if point.z is not None]
    figure.add_scatter(
        x=[point.strength for point in drawn],
        y=[point.z for point in drawn],
        name="each seed",
        mode="markers",
        marker={"symbol": "circle-open", "color": style.ORANGE, "size": 8},
        hovertemplate="strength %{x:.2f}, seed %{customdata}<br>z %{y:.2f}<extra></extra>",
        customdata=[point.seed for point in drawn],
    )
    figure.add_scatter(
        x=[strength for strength, _ in info.medians],
        y=[z for _, z in info.medians],
        name="median",
        mode="lines+markers",
        line={"color": style.BLUE, "width": 2.5},
        marker={"symbol": "diamond", "size": 8},
        hovertemplate="strength %{x:.2f}<br>median z %{y:.2f}<extra></extra>",
    )
    _lines(figure, info)
    figure.update_layout(meta=style.at_least(420), height=430, margin={"b": 90})
    return figure


def _lines(figure: go.Figure, info: Info) -> None:
    """What a score must exceed, and what it was before the attack."""
    said = {"annotation_position": "top right", "annotation_font_size": 12}
    figure.add_hline(
        info.threshold,
        line={"color": style.VERMILLION, "dash": "dash"},
        annotation_text=f"threshold {info.threshold:g}",
        **said,
    )
    if info.before is not None:
        figure.add_hline(
            info.before,
            line={"color": style.INK, "dash": "dot"},
            annotation_text=f"before the attack {info.before:.2f}",
            **said,
        )
