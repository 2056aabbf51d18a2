"""The effect of a green list's bias on the candidates of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style

_SHOWN = 16  # candidates


class Candidate(Protocol):
    """A candidate token with its probability before and after the bias."""

    @property
    def token(self) -> str:
        """The token's text."""
        ...

    @property
    def before(self) -> float:
        """Its probability before the bias."""
        ...

    @property
    def after(self) -> float:
        """Its probability after the bias."""
        ...

    @property
    def green(self) -> bool:
        """Whether it is on the green list."""
        ...

    @property
    def chosen(self) -> bool:
        """Whether the run chose it."""
        ...


class BiasedStep(NamedTuple):
    """The candidates of one step."""

    candidates: Sequence[Candidate]


class Bar(NamedTuple):
    """One candidate; its name says what its colour says."""

    name: str
    before: float
    after: float
    green: bool


class Bars(NamedTuple):
    """What the figure shows, in order of the probability after the bias."""

    bars: tuple[Bar, ...]


@view("watermark_bias", title="Effect of the bias", tab="explain", order=10, input=BiasedStep)
def watermark_bias(step: BiasedStep) -> go.Figure:
    """Probability of each candidate before and after the bias: green tokens gain, all others lose.
    The arrow marks the chosen token.
    """
    return _figure(_info(step))


def _info(step: BiasedStep) -> Bars:
    ordered = sorted(step.candidates, key=lambda candidate: (-candidate.after, -candidate.before))
    shown = ordered[:_SHOWN] + [candidate for candidate in ordered[_SHOWN:] if candidate.chosen]
    return Bars(tuple(Bar(_name(one), one.before, one.after, one.green) for one in shown))


def _name(candidate: Candidate) -> str:
    arrow = "→ " if candidate.chosen else ""
    colour = "green" if candidate.green else "red"
    return f"{arrow}{style.token_label(candidate.token, 16)} · {colour}"


def _figure(info: Bars) -> go.Figure:
    subtitle = "hatched: before the bias · solid: after the bias · → chosen"
    figure = style.empty_figure(subtitle, "probability", "candidate")
    colours = [style.GREEN if bar.green else style.VERMILLION for bar in info.bars]
    # Two candidates may have the same text, so the bars are at numbered positions.
    rows = list(range(len(info.bars)))
    for name, values, pattern in (
        ("before", [bar.before for bar in info.bars], "/"),
        ("after", [bar.after for bar in info.bars], ""),
    ):
        figure.add_trace(
            go.Bar(
                y=rows,
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
    figure.update_layout(barmode="group", showlegend=False, height=150 + 30 * max(3, len(rows)))
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    names = [bar.name for bar in info.bars]
    figure.update_yaxes(tickvals=rows, ticktext=names, autorange="reversed", showgrid=False)
    return figure
