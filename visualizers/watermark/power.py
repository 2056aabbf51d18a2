"""How many marked texts are found once they are so long.

Knows shares by length. Refuses to say more than was measured: a share that was never reached has no
length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style


class Found(NamedTuple):
    """The share of texts found at a length, and the interval it lies in."""

    length: int
    share: float
    low: float
    high: float


class Needed(NamedTuple):
    """From which length on so large a share is found; None where no text was that long."""

    power: float
    length: int | None


class Info(NamedTuple):
    """What is drawn: the share after 1, 2, 3 … tokens, and what was asked about it."""

    shares: tuple[float, ...]
    found: tuple[Found, ...]
    needed: tuple[Needed, ...]

    @property
    def words(self) -> str:
        """The lengths needed, as a sentence."""
        reached = [f"{one.power:.0%} from {one.length} tokens" for one in self.needed if one.length]
        missed = [f"{one.power:.0%}" for one in self.needed if not one.length]
        parts = [f"found: {', '.join(reached)}"] * bool(reached)
        parts += [f"never reached: {', '.join(missed)}"] * bool(missed)
        return "; ".join(parts)


def power(
    shares: Sequence[float], found: Sequence[Found], needed: Sequence[Needed], threshold: float
) -> go.Figure:
    """The share of marked texts above the threshold over their length, and the lengths needed."""
    return _figure(_info(shares, found, needed), threshold)


def _info(shares: Sequence[float], found: Sequence[Found], needed: Sequence[Needed]) -> Info:
    return Info(tuple(shares), tuple(found), tuple(needed))


def _figure(info: Info, threshold: float) -> go.Figure:
    title = f"Power: marked texts with z above {threshold:g}"
    figure = style.blank(title, info.words, "tokens of the text", "marked texts found")
    figure.add_scatter(
        x=list(range(1, len(info.shares) + 1)),
        y=info.shares,
        name="after each token",
        mode="lines",
        line={"color": style.BLUE, "width": 2.5, "shape": "hv"},
        hovertemplate="%{x} tokens<br>found %{y:.1%}<extra></extra>",
    )
    figure.add_scatter(
        x=[one.length for one in info.found],
        y=[one.share for one in info.found],
        name="with its interval",
        mode="markers",
        marker={"symbol": "square", "color": style.VERMILLION, "size": 8},
        error_y={
            "array": [one.high - one.share for one in info.found],
            "arrayminus": [one.share - one.low for one in info.found],
        },
        hovertemplate="%{x} tokens<br>found %{y:.1%}<extra></extra>",
    )
    for one in info.needed:
        if one.length is not None:
            figure.add_vline(one.length, line={"color": style.INK, "dash": "dot", "width": 1.5})
    figure.update_xaxes(range=[0, len(info.shares) * 1.03])
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".0%")
    return figure.update_layout(meta=style.at_least(420), height=430, margin={"b": 90})
