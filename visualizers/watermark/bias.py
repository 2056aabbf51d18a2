"""What a green list's bias did to the candidates of one step.

Knows candidates with their probabilities. Refuses to know which tokens a key makes green: it is
told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import plotly.graph_objects as go

from visualizers._shared import style as style

MOST = 16


class Candidate(Protocol):
    """A candidate as whoever explains a step has it."""

    @property
    def token(self) -> str:
        """Its spelling."""
        ...

    @property
    def before(self) -> float:
        """Its probability before the bias."""
        ...

    @property
    def after(self) -> float:
        """Its probability after it."""
        ...

    @property
    def green(self) -> bool:
        """Whether it is on the green list."""
        ...

    @property
    def chosen(self) -> bool:
        """Whether the run took it."""
        ...


class Bar(NamedTuple):
    """One candidate; its name says all that its colour says."""

    name: str
    before: float
    after: float
    green: bool


class Bars(NamedTuple):
    """What the figure shows, the most probable in the end first."""

    bars: tuple[Bar, ...]


def watermark_bias(candidates: Sequence[Candidate]) -> go.Figure:
    """Every candidate's probability before and after the bias: green ones gain, at the cost of all
    others. The one that was taken has an arrow."""
    return _figure(_info(candidates))


def _info(candidates: Sequence[Candidate]) -> Bars:
    ordered = sorted(candidates, key=lambda each: (-each.after, -each.before))
    kept = ordered[:MOST]
    kept += [each for each in ordered[MOST:] if each.chosen]
    return Bars(tuple(Bar(_named(each), each.before, each.after, each.green) for each in kept))


def _named(candidate: Candidate) -> str:
    arrow = "→ " if candidate.chosen else ""
    colour = "green" if candidate.green else "red"
    return f"{arrow}{style.spelled(candidate.token, 16)} · {colour}"


def _figure(info: Bars) -> go.Figure:
    told = "striped: before the bias · full: after it · → taken"
    figure = style.blank("What the bias did", told, "probability", "")
    colours = [style.GREEN if bar.green else style.VERMILLION for bar in info.bars]
    # Two candidates may be spelled alike: bars stand at places, which are named.
    places = list(range(len(info.bars)))
    for name, values, pattern in (
        ("before", [bar.before for bar in info.bars], "/"),
        ("after", [bar.after for bar in info.bars], ""),
    ):
        figure.add_trace(
            go.Bar(
                y=places,
                x=values,
                orientation="h",
                name=name,
                marker={"color": colours, "pattern": {"shape": pattern, "solidity": 0.4}},
                hovertext=[
                    f"<b>{bar.name}</b><br>{name}: {style.percent(value)}"
                    for bar, value in zip(info.bars, values, strict=True)
                ],
                hoverinfo="text",
            )
        )
    figure.update_layout(
        barmode="group",
        showlegend=False,
        height=150 + 30 * max(3, len(places)),
        meta=style.at_least(320),
    )
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    names = [bar.name for bar in info.bars]
    figure.update_yaxes(tickvals=places, ticktext=names, autorange="reversed", showgrid=False)
    return figure
