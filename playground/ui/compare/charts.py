"""The tabs with figures of the runs: charts and a table of all runs, and strategy details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr
import pandas as pd
from gradio.blocks import Block

from engine.trace import Trace
from playground import Playground, metrics
from playground.ui.shared.comparison import Comparison
from playground.ui.shared.events import Updates
from playground.ui.shared.figures import FigureTab, figure_tab
from visualizers import labels

_NO_CHARTS = "Run a comparison to see charts of all runs on the same axes."
_NO_DETAILS = (
    "Some strategies have figures of their own. Run contrastive search, DoLa, diverse or "
    "constrained beam search to see them here."
)
_SCORING = (
    "How probable is one strategy's text under another strategy's distribution? Each text is "
    "scored with the settings of each strategy, which takes one forward pass per text."
)
_LAST_COLUMNS = ("settings", "model", "detail", "error", "text")  # of the table: long texts


@dataclass(frozen=True)
class Charts:
    """The components of the tab Charts."""

    figures: FigureTab
    table: gr.Dataframe
    save: gr.Button
    score: gr.Button
    scored: FigureTab

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [*self.figures.outputs, self.table]

    def draw(self, traces: Sequence[Trace], position: int | None) -> Updates:
        """Show charts and the table of these traces."""
        return {**self.figures.draw(traces, position), self.table: metrics_table(traces)}


def build_charts() -> Charts:
    """The tab Charts."""
    figures = figure_tab("charts", _NO_CHARTS)
    with gr.Accordion("Table of all metrics", open=True, elem_id="table"):
        table = gr.Dataframe(
            interactive=False,
            show_label=False,
            wrap=False,
            max_chars=60,
            pinned_columns=1,
            show_search="none",
        )
        save = gr.Button("Save as CSV", size="sm", elem_id="save-csv")
    with gr.Accordion("Score each text under each strategy", open=True):
        gr.Markdown(_SCORING, elem_classes="summary")
        score = gr.Button("Score all texts", size="sm", elem_id="score")
        scored = figure_tab("scores", "")
    return Charts(figures, table, save, score, scored)


def build_details() -> FigureTab:
    """The tab Strategy details."""
    return figure_tab("strategy", _NO_DETAILS)


def metrics_table(traces: Sequence[Trace]) -> pd.DataFrame:
    """All metrics, under the names people read."""
    table = pd.DataFrame(metrics.table(traces, labels(traces)))
    order = sorted(table.columns, key=_LAST_COLUMNS.__contains__)
    names = {name: about.name for name, about in metrics.METRIC_TEXTS.items()}
    return table[order].rename(columns=names).round(4)


def score_all(comparison: Comparison, lab: Playground) -> list[Trace]:
    """Score each finished text under the settings of each finished run."""
    done = [column for column in comparison.columns if column.trace and column.trace.sequences]
    choices = [column.request.choice for column in done]
    traces: list[Trace] = []
    for column in done:
        assert column.trace is not None
        traces += lab.score(
            column.request.prompt,
            column.trace.sequences[0].token_ids,
            choices,
            prefix=column.prefix_ids,
            **column.request.shared,
        )
    return traces
