"""The z-score of a watermarked text over the strength of an attack."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style


class AttackResult(NamedTuple):
    """One attack: its strength and seed, and the z-score after it; None: too short to score."""

    strength: float
    seed: int
    z: float | None


class AttackCurve(NamedTuple):
    """An attack at several strengths and seeds."""

    title: str
    strength_title: str
    results: tuple[AttackResult, ...]
    before: float | None  # z-score of the text before the attack
    threshold: float


class Info(NamedTuple):
    """What the figure shows: the results with a score, and their median at each strength."""

    curve: AttackCurve
    scored: tuple[AttackResult, ...]
    medians: tuple[tuple[float, float], ...]


@view("watermark_attack", title="Attack", tab="attack", input=AttackCurve)
def watermark_attack(curve: AttackCurve) -> go.Figure:
    """The z-score of the text by the strength of the attack: one point per seed, and a line through
    the medians. Texts too short to score have no point.
    """
    return _figure(_info(curve))


def _info(curve: AttackCurve) -> Info:
    by_strength: dict[float, list[float]] = {}
    for result in curve.results:
        if result.z is not None:
            by_strength.setdefault(result.strength, []).append(result.z)
    return Info(
        curve,
        tuple(result for result in curve.results if result.z is not None),
        tuple((strength, median(by_strength[strength])) for strength in sorted(by_strength)),
    )


def _figure(info: Info) -> go.Figure:
    curve = info.curve
    strength = style.escape(curve.strength_title)
    figure = style.empty_figure("points: seeds · line: median", strength, "z-score")
    figure.add_scatter(
        x=[result.strength for result in info.scored],
        y=[result.z for result in info.scored],
        name="one seed",
        mode="markers",
        marker={"symbol": "circle-open", "color": style.ORANGE, "size": 8},
        hovertemplate="strength %{x:.2f}, seed %{customdata}<br>z %{y:.2f}<extra></extra>",
        customdata=[result.seed for result in info.scored],
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
    _add_reference_lines(figure, curve)
    return figure.update_layout(
        title={"text": style.escape(curve.title)},
        meta=style.min_width(420),
        height=430,
        margin={"b": 90},
    )


def _add_reference_lines(figure: go.Figure, curve: AttackCurve) -> None:
    """The detection threshold, and the score before the attack."""
    label = {"annotation_position": "top right", "annotation_font_size": 12}
    figure.add_hline(
        curve.threshold,
        line={"color": style.VERMILLION, "dash": "dash"},
        annotation_text=f"threshold {curve.threshold:g}",
        **label,
    )
    if curve.before is not None:
        figure.add_hline(
            curve.before,
            line={"color": style.INK, "dash": "dot"},
            annotation_text=f"before the attack {curve.before:.2f}",
            **label,
        )
