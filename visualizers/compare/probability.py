"""Probability of each token."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.registry import view
from visualizers.shared.style import percent
from visualizers.shared.token_lines import Lines, draw_lines, probabilities, token_lines


@view("probability", title="Token probability", order=10)
def probability(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Probability of each token of the best sequence: filled markers in the model's own
    distribution, open markers after the logits processors.

    The two differ where a processor (temperature, top-p, a penalty, a watermark) changed the
    distribution.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    return token_lines(traces, probabilities)


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    figure = draw_lines(info, "probability", percent, at)
    figure.update_yaxes(range=[-0.03, 1.03], tickformat=".0%")
    return figure
