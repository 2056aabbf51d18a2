"""Similarity between the hidden states of the tokens that contrastive search wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import (
    TokenAxis,
    category_axis,
    color_axis,
    label_tokens,
    outline,
    panel_title,
    stacked_panels,
    step_index,
    token_axis,
)
from visualizers.shared.runs import best_path, labels

_ROW = 22  # pixels
_TALLEST = 900


class SimilarityMatrix(NamedTuple):
    """One text: the similarity of every token to those before it, None where it was not recorded;
    ``highlighted`` is the index of a row."""

    label: str
    axis: TokenAxis
    rows: tuple[tuple[float | None, ...], ...]
    highlighted: int | None


class Similarities(NamedTuple):
    """What the figure shows."""

    texts: tuple[SimilarityMatrix, ...]


def needs(trace: Trace) -> bool:
    """Whether the trace recorded similarities between its tokens."""
    return any(step.notes.get("similarities") for step in trace.steps)


@view(
    "contrastive_similarity",
    title="Contrastive search: similarity",
    tab="strategy",
    order=41,
    needs=needs,
)
def contrastive_similarity(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Cosine similarity between the hidden state of each token and those of the tokens before it: 1
    is the same direction, 0 is unrelated. Bright stripes parallel to the diagonal show that the
    text repeats itself.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Similarities:
    named = zip(traces, labels(traces), strict=True)
    return Similarities(tuple(_matrix(trace, label, at) for trace, label in named if needs(trace)))


def _matrix(trace: Trace, label: str, at: int | None) -> SimilarityMatrix:
    path = best_path(trace)
    rows: list[tuple[float | None, ...]] = []
    for index, step in enumerate(path):
        recorded = step.notes.get("similarities", ())
        rows.append((None,) * (index - len(recorded)) + tuple(recorded))
    highlighted = None if at is None else step_index(trace, path, at)
    return SimilarityMatrix(label, token_axis(trace, path), tuple(rows), highlighted)


def _figure(info: Similarities) -> go.Figure:
    heights = [min(_TALLEST, 60 + _ROW * len(text.rows)) for text in info.texts]
    subtitle = "cosine similarity of hidden states"
    figure = stacked_panels(subtitle, "earlier token", "later token", heights, bottom=170)
    label_tokens(figure, [text.axis for text in info.texts])
    for row, text in enumerate(info.texts, start=1):
        figure.add_trace(_heatmap(text), row=row, col=1)
        names = [style.token_label(token, 10) for token in text.axis.tokens]
        figure.update_yaxes(category_axis(names), row=row)
        figure.update_yaxes(range=[len(names) - 0.5, -0.5], row=row)
        figure.add_annotation(panel_title(row, text.label))
        if text.highlighted is not None:
            outline(figure, row, None, (text.highlighted - 0.5, text.highlighted + 0.5))
    values = [
        value for text in info.texts for row in text.rows for value in row if value is not None
    ]
    figure.update_layout(
        coloraxis=color_axis("similarity", cmin=min([0.0, *values]), cmax=1), showlegend=False
    )
    return figure


def _heatmap(text: SimilarityMatrix) -> go.Heatmap:
    width = len(text.rows)
    return go.Heatmap(
        x=text.axis.positions,
        y=list(range(width)),
        z=[[*row, *[None] * (width - len(row))] for row in text.rows],
        # The axes hold the tokens: a text for every cell would make the figure ten times as large.
        hovertemplate="<b>%{y}</b><br>after <b>%{x}</b><br>similarity: %{z:.3f}<extra></extra>",
        coloraxis="coloraxis",
        hoverongaps=False,
        **{"xgap": 1, "ygap": 1},
    )
