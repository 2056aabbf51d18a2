"""How like each other the tokens are that contrastive search wrote.

Knows the likenesses the run noted of each token it took. Refuses to compute any: that needs hidden
states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers._shared.panels import (
    Text,
    Words,
    headline,
    leveled,
    named,
    outlined,
    pinned,
    stacked,
    text_of,
    tinted,
    written,
)
from visualizers.registry import view

_ROW = 22  # pixels
_TALLEST = 900


class Likeness(NamedTuple):
    """One text: for every token its likeness to those before it, None where none was told; the row
    to point out, counted from 0."""

    label: str
    text: Text
    rows: tuple[tuple[float | None, ...], ...]
    pinned: int | None


class Likenesses(NamedTuple):
    """What the figure shows."""

    texts: tuple[Likeness, ...]


def needs(trace: Trace) -> bool:
    """A trace that noted the likeness between tokens it wrote."""
    return any(step.notes.get("similarities") for step in trace.steps)


@view(
    "contrastive_similarity",
    title="Likeness within the text",
    order=41,
    tab="why",
    needs=needs,
)
def contrastive_similarity(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How much each token's hidden state (the model's view of it in its context) resembles that of
    every token written before it: 1 is the same direction, 0 is nothing in common. Bright stripes
    parallel to the diagonal mean that the text goes in circles.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Likenesses:
    named_ones = zip(traces, style.labels(traces), strict=True)
    return Likenesses(
        tuple(_likeness(trace, label, at) for trace, label in named_ones if needs(trace))
    )


def _likeness(trace: Trace, label: str, at: int | None) -> Likeness:
    path = best_path(trace)
    rows: list[tuple[float | None, ...]] = []
    for place, step in enumerate(path):
        told = step.notes.get("similarities", ())
        rows.append((None,) * (place - len(told)) + tuple(told))
    mark = None if at is None else pinned(trace, path, at)
    return Likeness(label, text_of(trace, path), tuple(rows), mark)


def _figure(info: Likenesses) -> go.Figure:
    words = Words(
        "Likeness within the text",
        "cosine of hidden states · upright: the later token",
        "earlier token",
        "later token",
    )
    heights = [min(_TALLEST, 60 + _ROW * len(each.rows)) for each in info.texts]
    figure = stacked(words, heights, bottom=170)
    written(figure, [each.text for each in info.texts])
    for row, each in enumerate(info.texts, start=1):
        figure.add_trace(_map(each), row=row, col=1)
        names = [style.spelled(token, 10) for token in each.text.tokens]
        figure.update_yaxes(leveled(names), row=row)
        figure.update_yaxes(range=[len(names) - 0.5, -0.5], row=row)
        figure.add_annotation(headline(named(each.label), row))
        if each.pinned is not None:
            outlined(figure, row, None, (each.pinned - 0.5, each.pinned + 0.5))
    told = [value for each in info.texts for row in each.rows for value in row if value is not None]
    figure.update_layout(
        coloraxis=tinted("likeness", cmin=min([0.0, *told]), cmax=1), showlegend=False
    )
    return figure


def _map(each: Likeness) -> go.Heatmap:
    wide = len(each.rows)
    return go.Heatmap(
        x=each.text.places,
        y=list(range(wide)),
        z=[[*row, *[None] * (wide - len(row))] for row in each.rows],
        # The axes spell the tokens: words for every cell would make the figure ten times as large.
        hovertemplate="<b>%{y}</b><br>and before it <b>%{x}</b><br>likeness: %{z:.3f}"
        "<extra></extra>",
        coloraxis="coloraxis",
        hoverongaps=False,
        **{"xgap": 1, "ygap": 1},
    )
