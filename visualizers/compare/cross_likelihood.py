"""Log-probability of each run's text under every other run's strategy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Token, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import best_path, labels

MODEL = "the model itself"
_ROW, _COLUMN, _TOP, _BOTTOM = 56, 110, 80, 130  # pixels


class Cell(NamedTuple):
    """One text under one distribution: its mean log-probability per token.

    ``cut`` of its ``tokens`` had no probability left and are not in the mean, which is None if all
    were cut.
    """

    mean: float | None
    cut: int
    tokens: int


class CrossLikelihood(NamedTuple):
    """What the figure shows: one row per text, one column per strategy; None: not scored."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]


def needs(trace: Trace) -> bool:
    """Whether the trace scores an existing text."""
    return bool(trace.steps) and all(step.event == "given" for step in trace.steps)


@view("cross_likelihood", title="Texts under other strategies", tab="scores", order=10, needs=needs)
def cross_likelihood(traces: Sequence[Trace]) -> go.Figure:
    """Mean log-probability per token of each text, under the model's own distribution and after
    each strategy's logits processors. Tokens that a strategy cuts are counted and left out of the
    mean.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> CrossLikelihood:
    scored = [trace for trace in traces if needs(trace)]
    strategies: dict[str, Trace] = {}
    by_text: dict[tuple[Token, ...], dict[str, Trace]] = {}
    for trace in scored:
        strategies.setdefault(_strategy(trace), trace)
        by_text.setdefault(_tokens(trace), {}).setdefault(_strategy(trace), trace)
    return CrossLikelihood(
        tuple(next(iter(row.values())).text for row in by_text.values()),
        (MODEL, *labels([*strategies.values()])) if scored else (),
        tuple(_row(row, [*strategies]) for row in by_text.values()),
    )


def _strategy(trace: Trace) -> str:
    """The key of a column: strategy and settings."""
    return json.dumps([trace.strategy, dict(trace.settings)], sort_keys=True, default=str)


def _tokens(trace: Trace) -> tuple[Token, ...]:
    """The key of a row: the whole text with its prompt."""
    return (*trace.prompt_tokens, *trace.prefix, *(step.token for step in best_path(trace)))


def _row(row: Mapping[str, Trace], strategies: Sequence[str]) -> tuple[Cell | None, ...]:
    paths = {key: best_path(trace) for key, trace in row.items()}
    any_path = next(iter(paths.values()))  # the model's own values are the same in all of them
    return (
        _cell([step.raw for step in any_path]),
        *(_cell([step.final for step in paths[key]]) if key in row else None for key in strategies),
    )


def _cell(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return Cell(fmean(known) if known else None, len(values) - len(known), len(values))


def _figure(info: CrossLikelihood) -> go.Figure:
    figure = style.empty_figure("mean log-probability per token (nats)", "strategy", "text")
    rows, columns = len(info.texts), len(info.columns)
    figure.update_layout(
        height=_TOP + _BOTTOM + _ROW * max(rows, 2),
        margin={"t": _TOP, "b": _BOTTOM},
        meta=style.min_width(260 + _COLUMN * columns),
    )
    if not rows:
        return figure
    figure.add_trace(_heatmap(info))
    figure.update_layout(annotations=_cells_without_value(info))
    figure.update_xaxes(
        **{"showgrid": False, "tickangle": 0, "tickvals": [*range(columns)]},
        ticktext=[style.wrapped(name, 16, 4) for name in info.columns],
    )
    figure.update_yaxes(
        **{"showgrid": False, "autorange": "reversed", "tickvals": [*range(rows)]},
        ticktext=[style.wrapped(_one_line(text), 26, 2) for text in info.texts],
    )
    return figure


def _heatmap(info: CrossLikelihood) -> go.Heatmap:
    return go.Heatmap(
        x=[*range(len(info.columns))],
        y=[*range(len(info.texts))],
        z=[[cell.mean if cell else None for cell in row] for row in info.cells],
        text=[
            [_cell_text(cell) if cell and cell.mean is not None else "" for cell in row]
            for row in info.cells
        ],
        texttemplate="%{text}",
        hovertext=[
            [_hover(text, column, cell) for column, cell in zip(info.columns, row, strict=True)]
            for text, row in zip(info.texts, info.cells, strict=True)
        ],
        hoverinfo="text",
        hoverongaps=True,
        colorscale="Viridis",
        colorbar={"title": {"text": "nats per token", "side": "right"}, "thickness": 12},
        **{"xgap": 3, "ygap": 3},
    )


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return "not scored"
    if cell.mean is None:
        return f"all {cell.tokens} cut"
    return f"<b>{round(cell.mean, 2) + 0.0:.2f}</b>" + (f"<br>{cell.cut} cut" if cell.cut else "")


def _cells_without_value(info: CrossLikelihood) -> list[dict[str, Any]]:
    """The texts of cells without a value, as annotations in the page's text colour: plotly picks
    the colour of a cell's text to suit its fill, and these cells have none."""
    return [
        {"text": _cell_text(cell), "showarrow": False, "x": column, "y": row}
        for row, cells in enumerate(info.cells)
        for column, cell in enumerate(cells)
        if cell is None or cell.mean is None
    ]


def _hover(text: str, column: str, cell: Cell | None) -> str:
    lines = [f"<b>{style.wrapped(_one_line(text), 60, 3)}</b>", style.escape(column)]
    if cell is None:
        return "<br>".join([*lines, "not scored"])
    if cell.mean is not None:
        mean = style.percent(math.exp(cell.mean))
        lines.append(f"{cell.mean:.3f} nats per token (geometric mean {mean})")
    lines.append(f"{cell.tokens - cell.cut:,} of {cell.tokens:,} tokens, {cell.cut:,} cut")
    return "<br>".join(lines)


def _one_line(text: str) -> str:
    """A whole text on one line; its spaces stay spaces."""
    return style.visible(text.strip()).replace("␣", " ")
