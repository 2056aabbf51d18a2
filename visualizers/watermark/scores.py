"""Histogram of the z-scores of watermarked and human-written texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style

_MAX_BINS = 48


class ScoreSamples(NamedTuple):
    """The z-scores of both kinds of texts, and the detection threshold."""

    human: tuple[float, ...]
    watermarked: tuple[float, ...]
    threshold: float


class Histogram(NamedTuple):
    """What the figure shows: the share of texts in each bin, from its start to the next start."""

    starts: tuple[float, ...]
    width: float
    human: tuple[float, ...]
    watermarked: tuple[float, ...]
    samples: ScoreSamples


@view(
    "watermark_scores",
    title="Distribution of z-scores",
    tab="calibrate",
    order=20,
    input=ScoreSamples,
)
def watermark_scores(samples: ScoreSamples) -> go.Figure:
    """Distribution of the z-scores of human-written and of watermarked texts, and the detection
    threshold (dashed).
    """
    return _figure(_info(samples))


def _info(samples: ScoreSamples) -> Histogram:
    scores = [*samples.human, *samples.watermarked]
    width = 0.5
    while (max(scores) - min(scores)) / width > _MAX_BINS:
        width *= 2
    bins = range(math.floor(min(scores) / width), math.floor(max(scores) / width) + 1)
    return Histogram(
        tuple(bin * width for bin in bins),
        width,
        _shares(samples.human, width, bins),
        _shares(samples.watermarked, width, bins),
        samples,
    )


def _shares(scores: Sequence[float], width: float, bins: range) -> tuple[float, ...]:
    counts = Counter(math.floor(score / width) for score in scores)
    return tuple(counts[bin] / len(scores) for bin in bins)


def _figure(info: Histogram) -> go.Figure:
    figure = style.empty_figure("share of the texts of each kind", "z-score", "share of texts")
    samples = info.samples
    for name, shares, texts, colour, pattern in (
        ("human-written", info.human, len(samples.human), style.ORANGE, ""),
        ("watermarked", info.watermarked, len(samples.watermarked), style.BLUE, "/"),
    ):
        figure.add_bar(
            x=[start + info.width / 2 for start in info.starts],
            y=shares,
            width=info.width,
            name=f"{name} ({texts} scores)",
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
        samples.threshold,
        line={"color": style.VERMILLION, "dash": "dash"},
        annotation_text=f"threshold {samples.threshold:g}",
        annotation_position="top right",
    )
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure.update_layout(
        barmode="overlay", meta=style.min_width(420), height=430, margin={"b": 90}
    )
