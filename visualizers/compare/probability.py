"""How probable each token of the text was.

Knows log-probabilities of steps. Refuses to know how a strategy came to its choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared.lines import Lines, drawn, measured
from visualizers._shared.style import percent
from visualizers.registry import view


def needs(trace: Trace) -> bool:
    """Any trace that took a step."""
    return bool(trace.steps)


@view("probability", title="Token probability", order=10, needs=needs)
def probability(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How probable each token of the best sequence was: filled marks as the model gave it, open
    ones as finally used.

    The two differ where a processor (temperature, top-p, a penalty, a watermark) had its say.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    return measured(traces, _probabilities)


def _probabilities(step: Step) -> tuple[float | None, float | None]:
    return step.probability, step.used


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    figure = drawn(info, "Token probability", "probability", percent, at)
    figure.update_yaxes(range=[-0.03, 1.03], tickformat=".0%")
    return figure
