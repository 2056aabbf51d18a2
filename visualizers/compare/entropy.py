"""How undecided the model was at each token of the text.

Knows the two entropies a step recorded. Refuses to compute one: that needs the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared.lines import Lines, drawn, measured
from visualizers.registry import view


def needs(trace: Trace) -> bool:
    """Any trace that took a step."""
    return bool(trace.steps)


@view("entropy", title="Entropy", order=20, needs=needs)
def entropy(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """How undecided the model was before each token: filled marks for its own distribution, open
    ones for the distribution finally used.

    Entropy is 0 nats when one token takes all and grows with the number of tokens that compete.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Lines:
    return measured(traces, _entropies)


def _entropies(step: Step) -> tuple[float | None, float | None]:
    given = step.distribution
    return (given.raw_entropy, given.final_entropy) if given else (None, None)


def _figure(info: Lines, at: int | None = None) -> go.Figure:
    figure = drawn(info, "Entropy", "entropy (nats)", lambda entropy: f"{entropy:.2f} nats", at)
    figure.update_yaxes(rangemode="tozero")
    return figure
