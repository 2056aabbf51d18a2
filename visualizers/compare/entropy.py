"""Entropy of the distribution at each token."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared.token_lines import Lines, draw_lines, token_lines


@view("entropy", title="Entropy", order=20)
def entropy(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Entropy of the distribution each token was chosen from: filled markers for the model's own
    distribution, open markers after the logits processors.

    Entropy is 0 nats where one token has all the probability, and grows with the number of tokens
    that compete.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    return token_lines(traces, _entropies)


def _entropies(step: Step) -> tuple[float | None, float | None]:
    found = step.distribution
    return (found.raw_entropy, found.final_entropy) if found else (None, None)


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    figure = draw_lines(info, "entropy (nats)", lambda entropy: f"{entropy:.2f} nats", at)
    figure.update_yaxes(rangemode="tozero")
    return figure
