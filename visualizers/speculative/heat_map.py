"""A drafter over a grid of its settings: how fast it is in each cell, and where it is fastest.

Knows cells and numbers. Refuses to know what the settings do. A cell that was not run stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from visualizers._shared import style as style
from visualizers._shared.panels import Words, headline, leveled, named, outlined, stacked, tinted

MEASURES = {
    "tokens_per_second": ("tokens a second", "{:.1f}"),
    "compression": ("tokens for each pass of the model", "{:.2f}"),
    "acceptance": ("kept of the judged", "{:.0%}"),
}


class Cell(NamedTuple):
    """One run: its place on both axes, its panel, and how it went."""

    x: float
    y: float
    panel: str
    tokens_per_second: float | None
    compression: float | None
    acceptance: float | None


class Grid(NamedTuple):
    """One panel: a value, or None, for each pair of settings; ``cells`` are behind them."""

    name: str
    values: tuple[tuple[float | None, ...], ...]
    cells: tuple[tuple[Cell | None, ...], ...]


class Info(NamedTuple):
    """What is drawn. ``best`` is the panel, row and column of the greatest value."""

    measure: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    panels: tuple[Grid, ...]
    best: tuple[int, int, int] | None


def heat(
    cells: Sequence[Cell],
    x_title: str,
    y_title: str,
    measure: str = "tokens_per_second",
    plain: float | None = None,
) -> go.Figure:
    """How a drafter did under every pair of settings, a panel for each further one; the frame is
    around the best. ``plain`` is what plain decoding does in tokens a second."""
    return _figure(_info(cells, measure), x_title, y_title, plain)


def _info(cells: Sequence[Cell], measure: str = "tokens_per_second") -> Info:
    xs, ys = sorted({cell.x for cell in cells}), sorted({cell.y for cell in cells})
    panels = []
    for name in dict.fromkeys(cell.panel for cell in cells):
        there = {(cell.x, cell.y): cell for cell in cells if cell.panel == name}
        rows = tuple(tuple(there.get((x, y)) for x in xs) for y in ys)
        values = tuple(
            tuple(getattr(cell, measure) if cell else None for cell in row) for row in rows
        )
        panels.append(Grid(name, values, rows))
    known = [
        (value, (panel, row, column))
        for panel, grid in enumerate(panels)
        for row, line in enumerate(grid.values)
        for column, value in enumerate(line)
        if value is not None
    ]
    best = max(known, key=lambda one: one[0])[1] if known else None
    return Info(measure, tuple(xs), tuple(ys), tuple(panels), best)


def _figure(info: Info, x_title: str, y_title: str, plain: float | None) -> go.Figure:
    title, spelling = MEASURES[info.measure]
    usual = "" if plain is None else f" · plain decoding: {plain:.1f} tokens a second"
    words = Words(
        f"Settings: {title}",
        f"framed: the best{usual}",
        style.escape(x_title),
        style.escape(y_title),
    )
    heights = [60 + 34 * len(info.ys)] * len(info.panels)
    figure = stacked(words, heights, between=100, bottom=150)
    for row, grid in enumerate(info.panels, start=1):
        figure.add_trace(_map(grid, spelling, x_title, y_title), row=row, col=1)
        figure.update_yaxes(leveled([f"{y:g}" for y in info.ys]), row=row)
        figure.update_xaxes(leveled([f"{x:g}" for x in info.xs]), row=row)
        if grid.name:
            figure.add_annotation(headline(named(grid.name), row))
    if info.best is not None:
        panel, line, column = info.best
        outlined(figure, panel + 1, (column - 0.5, column + 0.5), (line - 0.5, line + 0.5))
    figure.update_layout(
        coloraxis=tinted(title),
        showlegend=False,
        meta=style.at_least(150 + 56 * len(info.xs)),
    )
    return figure


def _map(grid: Grid, spelling: str, x_title: str, y_title: str) -> go.Heatmap:
    return go.Heatmap(
        z=[list(row) for row in grid.values],
        text=[
            ["" if value is None else spelling.format(value) for value in row]
            for row in grid.values
        ],
        texttemplate="%{text}",
        hovertext=[[_hover(cell, x_title, y_title) for cell in row] for row in grid.cells],
        hoverinfo="text",
        coloraxis="coloraxis",
        **{"xgap": 2, "ygap": 2},
    )


def _hover(cell: Cell | None, x_title: str, y_title: str) -> str:
    if cell is None:
        return "not run"
    head = [f"{style.escape(x_title)} {cell.x:g}", f"{style.escape(y_title)} {cell.y:g}"]
    numbers = [
        f"{title}: {spelling.format(value)}"
        for name, (title, spelling) in MEASURES.items()
        if (value := getattr(cell, name)) is not None
    ]
    return "<br>".join([*head, *([style.escape(cell.panel)] if cell.panel else []), *numbers])
