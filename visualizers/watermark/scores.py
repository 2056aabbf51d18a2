"""How the z-scores of marked texts lie against those of human-written ones.

Knows two lists of scores. Refuses to know texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style

_BINS = 48  # at most


class Info(NamedTuple):
    """The share of texts in each bin; a bin's scores are from its start up to the next one's."""

    starts: tuple[float, ...]
    width: float
    human: tuple[float, ...]
    marked: tuple[float, ...]
    texts: tuple[int, int]  # scores of human texts, and of marked ones
    threshold: float


def scores(human: Sequence[float], marked: Sequence[float], threshold: float) -> go.Figure:
    """Two histograms on one axis, with the threshold between them, or where it happens to lie."""
    return _figure(_info(human, marked, threshold))


def _info(human: Sequence[float], marked: Sequence[float], threshold: float) -> Info:
    every = [*human, *marked]
    width = 0.5
    while (max(every) - min(every)) / width > _BINS:
        width *= 2
    first, last = math.floor(min(every) / width), math.floor(max(every) / width)
    bins = range(first, last + 1)
    starts = tuple(bin * width for bin in bins)
    shares = _shares(human, width, bins), _shares(marked, width, bins)
    return Info(starts, width, *shares, (len(human), len(marked)), threshold)


def _shares(scores: Sequence[float], width: float, bins: range) -> tuple[float, ...]:
    counts = Counter(math.floor(score / width) for score in scores)
    return tuple(counts[bin] / len(scores) for bin in bins)


def _figure(info: Info) -> go.Figure:
    figure = style.blank(
        "Scores of marked and of human texts",
        "how large a share of each kind has which score",
        "z-score",
        "share of texts",
    )
    kinds = (
        ("human-written", info.human, style.ORANGE, ""),
        ("marked", info.marked, style.BLUE, "/"),
    )
    for place, (name, shares, colour, pattern) in enumerate(kinds):
        figure.add_bar(
            x=[start + info.width / 2 for start in info.starts],
            y=shares,
            width=info.width,
            name=f"{name} ({info.texts[place]} scores)",
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fillmode": "overlay"},
                "line": {"width": 0},
            },
            opacity=0.7,
            customdata=[(start, start + info.width) for start in info.starts],
            hovertemplate=f"{name}<br>z from %{{customdata[0]}} to %{{customdata[1]}}: %{{y:.1%}}"
            "<extra></extra>",
        )
    figure.add_vline(
        info.threshold,
        line={"color": style.VERMILLION, "dash": "dash"},
        annotation_text=f"threshold {info.threshold:g}",
        annotation_position="top right",
    )
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure.update_layout(
        barmode="overlay", meta=style.at_least(420), height=430, margin={"b": 90}
    )
