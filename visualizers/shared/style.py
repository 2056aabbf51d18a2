"""How figures look: colours, markers, template and defaults, and how they write tokens.

A figure works on a light and on a dark page: its backgrounds are transparent and its text is a grey
that reads on both. A page may set ``layout.font.color``; nothing else depends on the theme.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go

# The palette of Okabe and Ito, safe for colour-blind readers, without black and yellow, which are
# invisible on a dark and on a white page.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = OKABE_ITO = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
INK = "#787878"  # contrast 4.4:1 on white and 4.3:1 on Gradio's dark page
MUTED = "rgba(128,128,128,0.45)"
GRID = "rgba(128,128,128,0.2)"
TRANSPARENT = "rgba(0,0,0,0)"

HEIGHT, MIN_WIDTH = 450, 320  # pixels, for figures that set none
MARGIN = {"t": 80, "r": 20, "b": 80, "l": 80}  # pixels; at the top are title and subtitle

_AXIS = {
    **{"gridcolor": GRID, "linecolor": GRID, "zeroline": False},
    **{"automargin": True, "title": {"standoff": 12}},
}
TEMPLATE = go.layout.Template(
    layout={
        "colorway": OKABE_ITO,
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "font": {"color": INK, "family": "system-ui, sans-serif", "size": 13},
        "title": {
            **{"x": 0, "xanchor": "left", "xref": "container", "font": {"size": 17}},
            **{"y": 1, "yanchor": "top", "yref": "container", "pad": {"t": 14, "l": 12}},
        },
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "hovermode": "closest",
        # One dark card on either page; by default plotly uses the colour of each marker.
        "hoverlabel": {
            "align": "left",
            "namelength": -1,
            "bgcolor": "#22262e",
            "bordercolor": "#8a8f98",
            "font": {"color": "#f4f4f4", "size": 13},
        },
        # plotly.js 4 has a button that uploads the chart; a prompt may be private.
        "modebar": {
            "remove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
            **{"bgcolor": TRANSPARENT, "color": INK, "activecolor": BLUE},
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)


def complete(figure: go.Figure, title: str) -> go.Figure:
    """The figure with our template, and with titles, margins, height and minimal width where it
    sets none. Long subtitles are wrapped, as plotly would clip them on a phone."""
    layout = figure.layout
    for axis in figure.select_xaxes():
        axis.title.text = axis.title.text or "token"
    for axis in figure.select_yaxes():
        axis.title.text = axis.title.text or title.lower()
    own_margin = {side: layout.margin[side] for side in MARGIN if layout.margin[side] is not None}
    own_meta = layout.meta if isinstance(layout.meta, Mapping) else {}
    return figure.update_layout(
        template=TEMPLATE,
        title={
            "text": layout.title.text or title,
            "subtitle": {"text": _wrapped_subtitle(layout.title.subtitle.text or "")},
        },
        margin={**MARGIN, **own_margin},
        height=layout.height or HEIGHT,
        meta={**min_width(MIN_WIDTH), **own_meta},
    )


def _wrapped_subtitle(subtitle: str) -> str:
    """The subtitle on lines of at most 54 characters, broken between its parts."""
    lines = [""]
    for part in subtitle.split(" · "):
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], joined] if len(joined) <= 54 or not lines[-1] else [*lines, part]
    return "<br>".join(lines)


def min_width(pixels: float) -> dict[str, int]:
    """``layout.meta`` of a figure that is scrolled, not squeezed, on a narrower page."""
    return {"min_width": round(pixels)}


class Mark(NamedTuple):
    """A marker: symbol and colour always go together, so that colour is never the only cue."""

    symbol: str
    colour: str
    size: int


_RUN_MARKS = tuple(
    Mark(symbol, colour, 7)
    for symbol, colour in zip(
        ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross"),
        OKABE_ITO,
        strict=True,
    )
)


def run_mark(index: int) -> Mark:
    """The marker of the run at this index of a comparison."""
    return _RUN_MARKS[index % len(_RUN_MARKS)]


def empty_figure(subtitle: str, x_title: str, y_title: str) -> go.Figure:
    """A figure with its subtitle and axis titles and no data."""
    figure = go.Figure(layout={"title": {"subtitle": {"text": subtitle}}})
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def integer_axis(first: int, last: int) -> dict[str, Any]:
    """Settings of an axis of whole numbers; on a short axis plotly would label the halves."""
    return {"range": [first - 0.5, last + 0.5], "dtick": 1 if last <= 20 else None}


def mark_position(figure: go.Figure, at: int | None, row: int | str = "all") -> go.Figure:
    """The figure with a dashed line through the token at position ``at`` (from 0)."""
    if at is not None:
        figure.add_vline(at + 1, line={"color": INK, "width": 1.5, "dash": "dash"}, row=row)
    return figure


def with_message(figure: go.Figure, text: str) -> go.Figure:
    """An empty figure with a sentence in its middle that says why it is empty."""
    figure.add_annotation(
        text=escape(text),
        showarrow=False,
        **{"xref": "x domain", "x": 0.5, "yref": "y domain", "y": 0.5},
    )
    figure.update_layout(height=260)
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(showticklabels=False)
    return figure


_SYMBOLS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}


def visible(text: str) -> str:
    """The text with spaces and non-printing characters replaced by visible symbols."""
    return "".join(
        _SYMBOLS.get(character)
        or (character if character.isprintable() else f"\\u{ord(character):04x}")
        for character in text
    )


def escape(text: str) -> str:
    """Text that plotly shows as it is: plotly reads some HTML, and TeX where MathJax is loaded."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def token_label(token: str, width: int = 40) -> str:
    """A token's text for a figure: spaces visible, cut at ``width`` characters, escaped."""
    text = visible(token)
    return escape(text if len(text) <= width else text[: width - 1] + "…")


def wrapped(text: str, width: int, max_lines: int) -> str:
    """Text on at most ``max_lines`` lines of ``width`` characters, escaped; it is broken between
    words, after an underscore, or inside too long words."""
    lines = [""]
    for piece in _pieces(text, width):
        if len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], lines[max_lines - 1].rstrip() + "…"]
    return "<br>".join(escape(line.rstrip()) for line in lines)


def _pieces(text: str, width: int) -> Iterator[str]:
    for word in re.findall(r"\S+\s*", text):
        parts = [word] if len(word) <= width else re.findall(r"[^_]+_?|_", word)
        for part in parts:
            yield from (part[at : at + width] for at in range(0, len(part), width))


def percent(probability: float | None) -> str:
    """A probability as a percentage; very small ones in scientific notation."""
    if probability is None:
        return "not captured"
    return f"{probability:.1%}" if probability >= 0.001 or not probability else f"{probability:.1e}"
