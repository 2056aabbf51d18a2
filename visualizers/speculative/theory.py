"""Expected speed-up of speculative decoding by draft length, and the measured run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style


class DraftLengthTheory(NamedTuple):
    """One drafter: the speed-up for draft lengths 0, 1, 2 …, as in the paper (``ideal``: verifying
    several tokens costs as much as one) and with this machine's verification cost (``here``), and
    the mean draft length and speed-up that were measured."""

    label: str
    ideal: tuple[float, ...]
    here: tuple[float, ...]
    length: float
    measured: float


class Best(NamedTuple):
    """The highest point of a curve."""

    length: int
    speed_up: float


class Info(NamedTuple):
    """What the figure shows."""

    theory: DraftLengthTheory
    best_ideal: Best
    best_here: Best


@view(
    "speculative_theory",
    title="Speed-up by draft length",
    tab="rounds",
    order=50,
    input=DraftLengthTheory,
)
def speculative_theory(theory: DraftLengthTheory) -> go.Figure:
    """Expected speed-up over plain decoding by draft length: solid with the cost of verifying
    several tokens on this machine, dashed if that cost as much as one token; the large marker is
    the measured run.
    """
    return _figure(_info(theory))


def _info(theory: DraftLengthTheory) -> Info:
    return Info(theory, _best(theory.ideal), _best(theory.here))


def _best(curve: Sequence[float]) -> Best:
    length = max(range(len(curve)), key=lambda at: curve[at])
    return Best(length, curve[length])


def _figure(info: Info) -> go.Figure:
    theory = info.theory
    best = info.best_here.length or "none"
    subtitle = f"{style.escape(theory.label)} · best draft length here: {best}"
    figure = style.empty_figure(subtitle, "drafted tokens per round", "speed-up")
    figure.add_traces([*_curves(theory), *_points(info)])
    figure.add_hline(1.0, line={"color": style.INK, "dash": "dot", "width": 1.5})
    figure.update_xaxes(style.integer_axis(0, len(theory.ideal) - 1))
    figure.update_yaxes(ticksuffix="×", rangemode="tozero")
    figure.update_layout(height=460, meta=style.min_width(420), margin={"b": 110})
    return figure


def _curves(theory: DraftLengthTheory) -> list[go.Scatter]:
    label = style.escape(theory.label)
    return [
        go.Scatter(
            x=list(range(len(curve))),
            y=list(curve),
            mode="lines",
            line={"color": style.BLUE, "width": 2, "dash": dash},
            name=name,
            hovertemplate=f"{label}<br>%{{x}} drafted: %{{y:.2f}}×, {name}<extra></extra>",
        )
        for curve, dash, name in (
            (theory.here, "solid", "on this machine"),
            (theory.ideal, "dash", "ideal (paper)"),
        )
    ]


def _points(info: Info) -> list[go.Scatter]:
    """The best draft length here, and the measured run."""
    label, best = style.escape(info.theory.label), info.best_here
    outline = {"line": {"color": style.INK, "width": 1.5}, "color": style.BLUE}
    return [
        go.Scatter(
            x=[best.length],
            y=[best.speed_up],
            mode="markers",
            marker={"symbol": "circle-open", "size": 12, **outline},
            hovertemplate=f"{label}<br>best draft length here: %{{x}} (%{{y:.2f}}×)<extra></extra>",
            showlegend=False,
        ),
        go.Scatter(
            x=[info.theory.length],
            y=[info.theory.measured],
            mode="markers",
            marker={"symbol": "circle", "size": 14, **outline},
            name="measured",
            hovertemplate=f"{label}, measured<br>%{{x:.1f}} drafted per round: %{{y:.2f}}×"
            "<extra></extra>",
            cliponaxis=False,
        ),
    ]
