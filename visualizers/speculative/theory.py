"""The speed-up that theory expects of drafts by their length, and what a run had.

Knows curves and points. Refuses to know where they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style


class Case(NamedTuple):
    """One drafter: the speed-up by draft length 0, 1, 2 … as in the paper (``ideal``) and with what
    a pass of several tokens costs on this machine (``here``), and the run as it was measured."""

    label: str
    ideal: tuple[float, ...]
    here: tuple[float, ...]
    length: float
    measured: float


class Best(NamedTuple):
    """The top of a curve."""

    length: int
    speed_up: float


class Info(NamedTuple):
    """What is drawn: every case with the tops of its two curves."""

    cases: tuple[Case, ...]
    ideal: tuple[Best, ...]
    here: tuple[Best, ...]

    @property
    def longest(self) -> int:
        """The last draft length."""
        return max((len(case.ideal) - 1 for case in self.cases), default=1)

    @property
    def words(self) -> str:
        """The best lengths, as a sentence."""
        told = [
            f"{case.label}: {best.length or 'none'}"
            for case, best in zip(self.cases, self.here, strict=True)
        ]
        return f"best draft length here: {', '.join(told)}" if told else ""


def theory_curves(cases: Sequence[Case]) -> go.Figure:
    """The speed-up over plain decoding by draft length: solid with what judging several tokens
    costs here, dashed where that cost what one token does; the large mark is the run."""
    return _figure(_info(cases))


def _info(cases: Sequence[Case]) -> Info:
    return Info(
        tuple(cases),
        tuple(_best(case.ideal) for case in cases),
        tuple(_best(case.here) for case in cases),
    )


def _best(curve: Sequence[float]) -> Best:
    length = max(range(len(curve)), key=lambda at: curve[at])
    return Best(length, curve[length])


def _figure(info: Info) -> go.Figure:
    figure = style.blank(
        "Speed-up by draft length", style.escape(info.words), "drafted tokens a round", "speed-up"
    )
    for place, case in enumerate(info.cases):
        figure.add_traces(_case(place, case, info.here[place]))
    figure.add_hline(1.0, line={"color": style.INK, "dash": "dot", "width": 1.5})
    figure.update_xaxes(style.counted(0, info.longest))
    figure.update_yaxes(ticksuffix="×", rangemode="tozero")
    figure.update_layout(height=460, meta=style.at_least(420), margin={"b": 110})
    return figure


def _case(place: int, case: Case, best: Best) -> list[go.Scatter]:
    mark, name = style.trace_mark(place), style.escape(case.label)
    told = f"{name}<br>%{{x}} drafted: %{{y:.2f}}×"
    curves = [
        go.Scatter(
            x=list(range(len(curve))),
            y=list(curve),
            mode="lines",
            line={"color": mark.colour, "width": 2, "dash": dash},
            name=f"{name}, {what}",
            hovertemplate=f"{told} {what}<extra></extra>",
        )
        for curve, dash, what in (
            (case.here, "solid", "with this machine's passes"),
            (case.ideal, "dash", "by the paper"),
        )
    ]
    point = {"line": {"color": style.INK, "width": 1.5}, "color": mark.colour}
    top = go.Scatter(
        x=[best.length],
        y=[best.speed_up],
        mode="markers",
        marker={"symbol": f"{mark.symbol}-open", "size": 12, **point},
        hovertemplate=f"{told}, the best length here<extra></extra>",
        showlegend=False,
    )
    run = go.Scatter(
        x=[case.length],
        y=[case.measured],
        mode="markers+text",
        text=[name],
        textposition="top center",
        marker={"symbol": mark.symbol, "size": 14, **point},
        name=f"{name}, measured",
        hovertemplate=f"{name}, as measured<br>%{{x:.1f}} drafted a round: %{{y:.2f}}×"
        "<extra></extra>",
        cliponaxis=False,
    )
    return [*curves, top, run]
