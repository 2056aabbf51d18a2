"""Figures with one panel per run, one below the other, and axes labelled with tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace import Step, Trace
from visualizers.shared import style

COLUMN = 26  # pixels that a token needs below a panel
_TOP, _BETWEEN, _BOTTOM = 136, 130, 120  # pixels; below a panel are slanted tokens


class TokenAxis(NamedTuple):
    """The tokens along an axis; ``first`` is the position of the first one, counted from 1."""

    first: int
    tokens: tuple[str, ...]

    @property
    def positions(self) -> list[int]:
        """The positions of the tokens."""
        return list(range(self.first, self.first + len(self.tokens)))

    @property
    def last(self) -> int:
        """The position of the last token."""
        return self.first + len(self.tokens) - 1


def token_axis(trace: Trace, path: Sequence[Step]) -> TokenAxis:
    """The tokens of a path, at their positions in the whole text."""
    return TokenAxis(len(trace.prefix) + 1, tuple(step.token.text for step in path))


def step_index(trace: Trace, path: Sequence[Step], at: int | None, default: int = -1) -> int:
    """The index in the path of the step at text position ``at``, or of the nearest one; ``default``
    if no position is given."""
    if at is None:
        return default % len(path)
    return min(max(at - len(trace.prefix), 0), len(path) - 1)


def stacked_panels(
    subtitle: str,
    x_title: str,
    y_title: str,
    heights: Sequence[float],
    *,
    between: int = _BETWEEN,
    bottom: int = _BOTTOM,
) -> go.Figure:
    """An empty figure with one panel for each height (in pixels)."""
    heights = list(heights) or [300]
    inside = sum(heights) + between * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        row_heights=heights,
        vertical_spacing=between / inside if len(heights) > 1 else 0,
        figure=style.empty_figure(subtitle, x_title, y_title),
    )
    figure.update_layout(
        height=inside + _TOP + bottom,
        margin={"t": _TOP, "b": bottom},
        showlegend=True,
    )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def panel_title(row: int, label: str, detail: str = "") -> dict[str, Any]:
    """The annotation above a panel: a label in bold, and a line of detail that may hold HTML."""
    text = f"<b>{style.wrapped(label, 38, 2)}</b>" if label else ""
    return panel_note(row, "<br>".join(filter(None, (text, detail))))


def panel_note(row: int, text: str) -> dict[str, Any]:
    """An annotation above a panel; the text is plotly's HTML."""
    axis = "" if row == 1 else str(row)
    return {
        "text": text,
        "showarrow": False,
        **{"xref": f"x{axis} domain", "x": 0, "xanchor": "left", "align": "left"},
        **{"yref": f"y{axis} domain", "y": 1, "yanchor": "bottom", "yshift": 4},
    }


def label_tokens(figure: go.Figure, axes: Sequence[TokenAxis]) -> None:
    """Label the x axis of each panel with its tokens."""
    for row, axis in enumerate(axes, start=1):
        figure.update_xaxes(
            tickvals=axis.positions,
            ticktext=[style.token_label(token, 10) for token in axis.tokens],
            tickangle=-45,
            range=[axis.first - 0.5, axis.last + 0.5],
            showgrid=False,
            row=row,
        )
    longest = max((len(axis.tokens) for axis in axes), default=1)
    figure.update_layout(meta=style.min_width(150 + COLUMN * longest))


def category_axis(names: Sequence[str]) -> dict[str, Any]:
    """Settings of a heat map's axis: one row or column per name, the first at the origin."""
    return {
        **{"tickvals": list(range(len(names))), "ticktext": list(names)},
        **{"range": [-0.5, len(names) - 0.5], "showgrid": False},
    }


def outline(
    figure: go.Figure, row: int, x: tuple[float, float] | None, y: tuple[float, float] | None
) -> None:
    """Draw a frame around cells of a panel; None means its whole width or height."""
    axis = "" if row == 1 else str(row)
    (x0, x1), (y0, y1) = x or (0, 1), y or (0, 1)
    figure.add_shape(
        type="rect",
        **{"xref": f"x{axis}" + (" domain" if x is None else ""), "x0": x0, "x1": x1},
        **{"yref": f"y{axis}" + (" domain" if y is None else ""), "y0": y0, "y1": y1},
        line={"color": style.VERMILLION, "width": 3},
    )


def color_axis(title: str, **limits: float) -> dict[str, Any]:
    """The colour axis that all heat maps of a figure share, its scale below the panels."""
    return {
        "colorscale": "Viridis",
        **limits,
        "colorbar": {
            **{"orientation": "h", "thickness": 10, "len": 220, "lenmode": "pixels"},
            **{"x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
            "title": {"text": f" {title}", "side": "right", "font": {"size": 12}},
        },
    }
