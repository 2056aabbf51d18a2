"""Speed of a drafter over a grid of its settings."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import (
    category_axis,
    color_axis,
    outline,
    panel_title,
    stacked_panels,
)


class Cell(NamedTuple):
    """One run: its settings on both axes, its panel, and its results; None: not measured."""

    x: float
    y: float
    panel: str
    tokens_per_second: float | None
    compression: float | None  # tokens per pass of the target model
    acceptance: float | None


class SettingsGrid(NamedTuple):
    """The runs of a grid, the titles of its axes, and the speed of plain decoding."""

    cells: tuple[Cell, ...]
    x_title: str
    y_title: str
    plain: float | None = None  # tokens per second


class Panel(NamedTuple):
    """One panel: a cell, or None where no run was made, for each pair of settings."""

    name: str
    cells: tuple[tuple[Cell | None, ...], ...]

    @property
    def values(self) -> tuple[tuple[float | None, ...], ...]:
        """Tokens per second of each cell."""
        return tuple(
            tuple(cell.tokens_per_second if cell else None for cell in row) for row in self.cells
        )


class Info(NamedTuple):
    """What the figure shows; ``best`` is the panel, row and column of the fastest run."""

    grid: SettingsGrid
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    panels: tuple[Panel, ...]
    best: tuple[int, int, int] | None


@view("speculative_grid", title="Speed by settings", tab="draft_length", input=SettingsGrid)
def speculative_grid(grid: SettingsGrid) -> go.Figure:
    """Tokens per second of a drafter for each pair of settings; the frame is the fastest."""
    return _figure(_info(grid))


def _info(grid: SettingsGrid) -> Info:
    xs, ys = sorted({cell.x for cell in grid.cells}), sorted({cell.y for cell in grid.cells})
    panels = []
    for name in dict.fromkeys(cell.panel for cell in grid.cells):
        by_settings = {(cell.x, cell.y): cell for cell in grid.cells if cell.panel == name}
        panels.append(Panel(name, tuple(tuple(by_settings.get((x, y)) for x in xs) for y in ys)))
    measured = [
        (value, (index, row, column))
        for index, panel in enumerate(panels)
        for row, values in enumerate(panel.values)
        for column, value in enumerate(values)
        if value is not None
    ]
    best = max(measured, key=lambda one: one[0])[1] if measured else None
    return Info(grid, tuple(xs), tuple(ys), tuple(panels), best)


def _figure(info: Info) -> go.Figure:
    grid = info.grid
    plain = "" if grid.plain is None else f" · plain decoding: {grid.plain:.1f} tokens per second"
    figure = stacked_panels(
        f"tokens per second · framed: the fastest{plain}",
        style.escape(grid.x_title),
        style.escape(grid.y_title),
        [60 + 34 * len(info.ys)] * len(info.panels),
        between=100,
        bottom=150,
    )
    for row, panel in enumerate(info.panels, start=1):
        figure.add_trace(_heatmap(panel, grid), row=row, col=1)
        figure.update_yaxes(category_axis([f"{y:g}" for y in info.ys]), row=row)
        figure.update_xaxes(category_axis([f"{x:g}" for x in info.xs]), row=row)
        if panel.name:
            figure.add_annotation(panel_title(row, panel.name))
    if info.best is not None:
        index, line, column = info.best
        outline(figure, index + 1, (column - 0.5, column + 0.5), (line - 0.5, line + 0.5))
    figure.update_layout(
        coloraxis=color_axis("tokens per second"),
        showlegend=False,
        meta=style.min_width(150 + 56 * len(info.xs)),
    )
    return figure


def _heatmap(panel: Panel, grid: SettingsGrid) -> go.Heatmap:
    return go.Heatmap(
        z=[list(row) for row in panel.values],
        text=[["" if value is None else f"{value:.1f}" for value in row] for row in panel.values],
        texttemplate="%{text}",
        hovertext=[[_hover(cell, grid) for cell in row] for row in panel.cells],
        hoverinfo="text",
        coloraxis="coloraxis",
        **{"xgap": 2, "ygap": 2},
    )


def _hover(cell: Cell | None, grid: SettingsGrid) -> str:
    if cell is None:
        return "not run"
    lines = [
        f"{style.escape(grid.x_title)} {cell.x:g}",
        *([f"{style.escape(grid.y_title)} {cell.y:g}"] if grid.y_title else []),
        *([style.escape(cell.panel)] if cell.panel else []),
    ]
    if cell.tokens_per_second is not None:
        lines.append(f"{cell.tokens_per_second:.1f} tokens per second")
    if cell.compression is not None:
        lines.append(f"{cell.compression:.2f} tokens per pass of the model")
    if cell.acceptance is not None:
        lines.append(f"{cell.acceptance:.0%} of verified tokens accepted")
    return "<br>".join(lines)
