"""Texts against strategies: how probable each would have found the other's.

Knows runs whose every token was given to them. Refuses to know how a text was first written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Token, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers.registry import view

MODEL = "the model itself"
_ROW, _COLUMN, _TOP, _BOTTOM = 56, 110, 80, 130  # pixels


class Cell(NamedTuple):
    """One text under one distribution: its mean log-probability per token, where it had any.

    ``cut`` of its ``tokens`` had been left no probability; the mean is that of the others.
    """

    mean: float | None
    cut: int
    tokens: int


class Crossing(NamedTuple):
    """What the figure shows: rows are texts, columns strategies; None was not scored."""

    texts: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]


def needs(trace: Trace) -> bool:
    """A trace whose every token was given to it."""
    return bool(trace.steps) and all(step.event == "given" for step in trace.steps)


@view("crossed", title="Texts against strategies", order=10, tab="scored", needs=needs)
def crossed(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Each text's mean log-probability per token, as the model gives it and as each strategy's
    processors leave it; tokens a strategy would have cut are counted and left out of the mean.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Crossing:
    scored = [trace for trace in traces if needs(trace)]
    strategies: dict[str, Trace] = {}
    by_text: dict[tuple[Token, ...], dict[str, Trace]] = {}
    for trace in scored:
        strategies.setdefault(_strategy(trace), trace)
        by_text.setdefault(_tokens(trace), {}).setdefault(_strategy(trace), trace)
    return Crossing(
        tuple(next(iter(row.values())).text for row in by_text.values()),
        (MODEL, *style.labels([*strategies.values()])) if scored else (),
        tuple(_row(row, [*strategies]) for row in by_text.values()),
    )


def _strategy(trace: Trace) -> str:
    """What makes two traces the same column."""
    return json.dumps([trace.strategy, dict(trace.settings)], sort_keys=True, default=str)


def _tokens(trace: Trace) -> tuple[Token, ...]:
    """What makes two traces the same row."""
    return (*trace.prompt_tokens, *trace.prefix, *(step.token for step in best_path(trace)))


def _row(row: Mapping[str, Trace], strategies: Sequence[str]) -> tuple[Cell | None, ...]:
    paths = {key: best_path(trace) for key, trace in row.items()}
    own = next(iter(paths.values()))
    return (
        _cell([step.raw for step in own]),
        *(_cell([step.final for step in paths[key]]) if key in row else None for key in strategies),
    )


def _cell(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return Cell(fmean(known) if known else None, len(values) - len(known), len(values))


def _figure(info: Crossing) -> go.Figure:
    figure = style.blank(
        "Texts against strategies", "mean log-probability per token (nats)", "strategy", "text"
    )
    rows, columns = len(info.texts), len(info.columns)
    figure.update_layout(
        height=_TOP + _BOTTOM + _ROW * max(rows, 2),
        margin={"t": _TOP, "b": _BOTTOM},
        meta=style.at_least(260 + _COLUMN * columns),
    )
    if not rows:
        return figure
    figure.add_trace(_heat(info))
    figure.update_layout(annotations=_unmeasured(info))
    figure.update_xaxes(
        title={"standoff": 12},
        **{"showgrid": False, "tickangle": 0, "tickvals": [*range(columns)]},
        ticktext=[_wrapped(name, 16, 4) for name in info.columns],
    )
    figure.update_yaxes(
        title={"standoff": 12},
        **{"showgrid": False, "autorange": "reversed", "tickvals": [*range(rows)]},
        ticktext=[_wrapped(_plain(text), 26, 2) for text in info.texts],
    )
    return figure


def _heat(info: Crossing) -> go.Heatmap:
    return go.Heatmap(
        x=[*range(len(info.columns))],
        y=[*range(len(info.texts))],
        z=[[cell.mean if cell else None for cell in row] for row in info.cells],
        text=[
            [_written(cell) if cell and cell.mean is not None else "" for cell in row]
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


def _written(cell: Cell | None) -> str:
    if cell is None:
        return "not scored"
    if cell.mean is None:
        return f"all {cell.tokens} cut"
    return f"<b>{round(cell.mean, 2) + 0.0:.2f}</b>" + (f"<br>{cell.cut} cut" if cell.cut else "")


def _unmeasured(info: Crossing) -> list[dict[str, Any]]:
    """The words of cells that have no number and so no colour, in the page's ink: plotly would
    write them for a colour that is not there."""
    return [
        {"text": _written(cell), "showarrow": False, "x": column, "y": row}
        for row, cells in enumerate(info.cells)
        for column, cell in enumerate(cells)
        if cell is None or cell.mean is None
    ]


def _hover(text: str, column: str, cell: Cell | None) -> str:
    lines = [f"<b>{_wrapped(_plain(text), 60, 3)}</b>", style.escape(column)]
    if cell is None:
        return "<br>".join([*lines, "not scored"])
    if cell.mean is not None:
        each = f"{style.percent(math.exp(cell.mean))} each on average"
        lines.append(f"{cell.mean:.3f} nats per token, {each}")
    lines.append(f"{cell.tokens - cell.cut:,} of {cell.tokens:,} tokens, {cell.cut:,} cut")
    return "<br>".join(lines)


def _plain(text: str) -> str:
    """A whole text on one line: its spaces need no picture."""
    return style.visible(text.strip()).replace("␣", " ")


def _wrapped(text: str, width: int, most: int) -> str:
    """The text on at most so many lines, broken between words, or inside one that is too long."""
    lines = [""]
    for piece in _pieces(text, width):
        if len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1].rstrip() + "…"]
    return "<br>".join(style.escape(line.rstrip()) for line in lines)


def _pieces(text: str, width: int) -> Iterator[str]:
    for word in re.findall(r"\S+\s*", text):
        parts = [word] if len(word) <= width else re.findall(r"[^_]+_?|_", word)
        for part in parts:
            yield from (part[at : at + width] for at in range(0, len(part), width))
