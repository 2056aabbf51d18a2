"""One panel per trace, one below the other, and texts that run along the bottom of a panel.

Knows heights, axes and which place of a text a person pointed at. Refuses to know what a panel
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace import Step, Trace
from visualizers._shared import style as style

COLUMN = 26  # pixels that a token needs below a panel
_TOP, _BETWEEN, _BOTTOM = 124, 130, 120  # pixels; below a panel stand slanted tokens


class Words(NamedTuple):
    """What a figure says of itself."""

    title: str
    subtitle: str
    x_title: str
    y_title: str


class Text(NamedTuple):
    """The tokens of a text; ``first`` is the place of the first one, counted from 1."""

    first: int
    tokens: tuple[str, ...]

    @property
    def places(self) -> list[int]:
        """Where the tokens stand."""
        return list(range(self.first, self.first + len(self.tokens)))

    @property
    def last(self) -> int:
        """Where the last token stands."""
        return self.first + len(self.tokens) - 1


def text_of(trace: Trace, path: Sequence[Step]) -> Text:
    """The tokens of a path, at their places in the whole text."""
    return Text(len(trace.prefix) + 1, tuple(step.token.text for step in path))


def pinned(trace: Trace, path: Sequence[Step], at: int | None, otherwise: int = -1) -> int:
    """Which step of a path to show: the one pointed at or the nearest there is, counted from 0;
    where nobody points, ``otherwise``."""
    if at is None:
        return otherwise % len(path)
    return min(max(at - len(trace.prefix), 0), len(path) - 1)


def stacked(
    words: Words,
    heights: Sequence[float],
    *,
    top: int = _TOP,
    between: int = _BETWEEN,
    bottom: int = _BOTTOM,
) -> go.Figure:
    """An empty figure with a panel for each height, in pixels."""
    heights = list(heights) or [300]
    inside = sum(heights) + between * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        row_heights=heights,
        vertical_spacing=between / inside if len(heights) > 1 else 0,
        figure=style.blank(*words),
    )
    figure.update_layout(
        height=inside + top + bottom,
        margin={"t": top, "b": bottom},
        title={"yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 14}},
        showlegend=True,
    )
    figure.update_xaxes(title=words.x_title)
    figure.update_yaxes(title=words.y_title)
    return figure


def headline(text: str, row: int) -> dict[str, Any]:
    """The annotation that names a panel; the text is plotly's HTML."""
    axis = "" if row == 1 else str(row)
    return {
        "text": text,
        "showarrow": False,
        **{"xref": f"x{axis} domain", "x": 0, "xanchor": "left", "align": "left"},
        **{"yref": f"y{axis} domain", "y": 1, "yanchor": "bottom", "yshift": 4},
    }


def named(label: str, more: str = "") -> str:
    """A panel's name, and what else to say of it on the next line."""
    return f"<b>{style.escape(label)}</b>" + (f"<br>{more}" if more else "")


def written(figure: go.Figure, texts: Sequence[Text]) -> None:
    """Every panel's text, token by token, along its bottom."""
    for row, text in enumerate(texts, start=1):
        figure.update_xaxes(
            tickvals=text.places,
            ticktext=[style.spelled(token, 10) for token in text.tokens],
            tickangle=-45,
            range=[text.first - 0.5, text.last + 0.5],
            showgrid=False,
            row=row,
        )
    longest = max((len(text.tokens) for text in texts), default=1)
    figure.update_layout(meta=style.at_least(150 + COLUMN * longest))


def leveled(names: Sequence[str]) -> dict[str, Any]:
    """The settings of an upright axis of a heat map: a row for each name, the first one below."""
    return {
        **{"tickvals": list(range(len(names))), "ticktext": list(names)},
        **{"range": [-0.5, len(names) - 0.5], "showgrid": False},
    }


def outlined(
    figure: go.Figure, row: int, x: tuple[float, float] | None, y: tuple[float, float] | None
) -> None:
    """A frame around some cells of a panel; None stands for its whole width or height."""
    axis = "" if row == 1 else str(row)
    (x0, x1), (y0, y1) = x or (0, 1), y or (0, 1)
    figure.add_shape(
        type="rect",
        **{"xref": f"x{axis}" + (" domain" if x is None else ""), "x0": x0, "x1": x1},
        **{"yref": f"y{axis}" + (" domain" if y is None else ""), "y0": y0, "y1": y1},
        line={"color": style.VERMILLION, "width": 3},
    )


def tinted(title: str, **limits: float) -> dict[str, Any]:
    """The colour axis that all panels of heat maps share, its key below them."""
    return {
        "colorscale": "Viridis",
        **limits,
        "colorbar": {
            **{"orientation": "h", "thickness": 10, "len": 220, "lenmode": "pixels"},
            **{"x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
            "title": {"text": f" {title}", "side": "right", "font": {"size": 12}},
        },
    }
