"""The tab Across: all runs on the same axes, in one table, and under each other's distributions.

Knows how runs are set beside each other. Refuses to compute a figure: traces and the lab have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
import pandas as pd

from engine.trace import Trace
from playground import Playground, metrics
from playground.ui.compare.results import Board
from playground.ui.shared import figures
from playground.ui.shared.figures import Figures
from visualizers import labels

_EMPTY = "Run a comparison: its figures stand here, all runs on the same axes."
_SCORING = (
    "What would one strategy have made of another's text? Every text is read again under every "
    "strategy's settings: one pass of the model for each text."
)
# What tells runs apart stands first; long texts stand last.
_LAST = ("settings", "model", "detail", "error", "text")


@dataclass(frozen=True)
class Across:
    """The parts of the tab."""

    figures: Figures
    table: gr.Dataframe
    save: gr.Button
    score: gr.Button
    scored: Figures


def tab() -> Across:
    """The tab."""
    drawn = figures.places("charts", _EMPTY)
    with gr.Accordion("All figures in a table", open=True, elem_id="table"):
        table = gr.Dataframe(
            interactive=False,
            show_label=False,
            wrap=False,
            max_chars=60,
            pinned_columns=1,
            show_search="none",
        )
        save = gr.Button("Save as CSV", size="sm", elem_id="save-csv")
    with gr.Accordion("One strategy's text under another's distribution", open=True):
        gr.Markdown(_SCORING, elem_classes="summary")
        score = gr.Button("Score every text under every strategy", size="sm", elem_id="score")
        scored = figures.places("scores", "")
    return Across(drawn, table, save, score, scored)


def rows(traces: Sequence[Trace]) -> pd.DataFrame:
    """The table of all figures, under the names people read."""
    told = pd.DataFrame(metrics.table(traces, labels(traces)))
    order = sorted(told.columns, key=_LAST.__contains__)
    words = {name: about.name for name, about in metrics.METRIC_TEXTS.items()}
    return told[order].rename(columns=words).round(4)


def scored(board: Board, lab: Playground) -> list[Trace]:
    """Every finished text under every finished run's settings."""
    done = [column for column in board.columns if column.trace and column.trace.sequences]
    choices = [column.asked.choice for column in done]
    traces: list[Trace] = []
    for column in done:
        assert column.trace is not None
        traces += lab.score(
            column.asked.prompt,
            column.trace.sequences[0].token_ids,
            choices,
            prefix=[inherited.token.id for inherited in column.before],
            **column.asked.shared,
        )
    return traces


def drawn(parts: Across, traces: Sequence[Trace], at: int | None) -> list[Any]:
    """What the tab shows of these traces."""
    return [*parts.figures.drawn(traces, at), rows(traces) if traces else gr.skip()]
