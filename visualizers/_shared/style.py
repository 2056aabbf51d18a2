"""How every figure looks and speaks: colours, marks, names of traces, spellings of tokens.

Knows plotly's layout and which colours survive colour blindness. Refuses to know what a view
measures.

A figure does not know whether its page is light or dark: its backgrounds are transparent and its
ink is a grey that reads on both. A page that knows better sets ``layout.font.color``; nothing else
depends on the theme.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace

# Okabe and Ito's palette without black and yellow, which vanish on a dark and on a white page.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = OKABE_ITO = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
INK = "#787878"  # 4.4:1 on white and 4.3:1 on Gradio's dark page
QUIET = "rgba(128,128,128,0.45)"
GRID = "rgba(128,128,128,0.2)"
CLEAR = "rgba(0,0,0,0)"

TEMPLATE = go.layout.Template(
    layout={
        "colorway": OKABE_ITO,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"color": INK, "family": "system-ui, sans-serif", "size": 13},
        "title": {"x": 0, "xanchor": "left", "xref": "paper", "font": {"size": 17}},
        "hovermode": "closest",
        # One dark card on either page; plotly would take the colour of each mark.
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#22262e",
            "bordercolor": "#8a8f98",
            "font": {"color": "#f4f4f4", "size": 13},
        },
        # plotly.js 4 has a button that uploads the chart; a prompt may be private.
        "modebar": {
            "remove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
            **{"bgcolor": CLEAR, "color": INK, "activecolor": BLUE},
        },
        "xaxis": {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "automargin": True},
        "yaxis": {"gridcolor": GRID, "linecolor": GRID, "zeroline": False, "automargin": True},
    }
)


class Mark(NamedTuple):
    """A shape, a colour and a size that always go together, so that colour never speaks alone."""

    symbol: str
    colour: str
    size: int


# One mark per trace of a comparison, by its place.
_TRACE_MARKS = tuple(
    Mark(symbol, colour, 7)
    for symbol, colour in zip(
        ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross"),
        OKABE_ITO,
        strict=True,
    )
)


def trace_mark(place: int) -> Mark:
    """The mark of the trace at this place of a comparison."""
    return _TRACE_MARKS[place % len(_TRACE_MARKS)]


def blank(title: str, subtitle: str, x_title: str, y_title: str) -> go.Figure:
    """A figure with its words and axes and nothing in it."""
    figure = go.Figure()
    figure.update_layout(
        template=TEMPLATE,
        title={"text": title, "subtitle": {"text": subtitle}},
        margin={"t": 80, "r": 20},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def counted(first: int, last: int) -> dict[str, Any]:
    """The axis settings that show whole numbers; on a short axis plotly would count halves."""
    return {"range": [first - 0.5, last + 0.5], "dtick": 1 if last <= 20 else None}


def pointed(figure: go.Figure, at: int | None, row: int | str = "all") -> go.Figure:
    """The figure with a line through one place of the texts, counted from 0."""
    if at is not None:
        figure.add_vline(at + 1, line={"color": INK, "width": 1.5, "dash": "dash"}, row=row)
    return figure


def said(figure: go.Figure, words: str) -> go.Figure:
    """The figure with a sentence in its middle: why there is nothing to see."""
    figure.add_annotation(
        text=escape(words),
        showarrow=False,
        **{"xref": "x domain", "x": 0.5, "yref": "y domain", "y": 0.5},
    )
    figure.update_layout(height=260)
    figure.update_xaxes(showticklabels=False)
    figure.update_yaxes(showticklabels=False)
    return figure


def at_least(width: int) -> dict[str, int]:
    """What ``layout.meta`` tells a page: on a narrower screen scroll, do not squeeze (pixels)."""
    return {"min_width": width}


_PICTURES = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}


def visible(text: str) -> str:
    """The text with every character that leaves no ink spelled out."""
    return "".join(
        _PICTURES.get(character)
        or (character if character.isprintable() else f"\\u{ord(character):04x}")
        for character in text
    )


def escape(text: str) -> str:
    """Text that plotly shows as it is: it reads some HTML, and TeX where MathJax is loaded."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def spelled(token: str, width: int = 40) -> str:
    """A token as a figure may show it: inkless characters visible, cut at ``width``, escaped."""
    text = visible(token)
    return escape(text if len(text) <= width else text[: width - 1] + "…")


def percent(probability: float) -> str:
    """A probability for people; very small ones keep their magnitude."""
    return f"{probability:.1%}" if probability >= 0.001 or not probability else f"{probability:.1e}"


def labels(traces: Sequence[Trace]) -> tuple[str, ...]:
    """One name per trace, no two alike: its strategy and what tells it from the others."""
    names = [
        " · ".join([trace.strategy, *_begun(trace), *_told(trace, traces)]) for trace in traces
    ]
    seen: Counter[str] = Counter()
    for place, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[place] = f"{name} ({seen[name]})"
    return tuple(names)


def _begun(trace: Trace) -> list[str]:
    """Where a run began that goes on from a text that was there."""
    return [f"from token {len(trace.prefix) + 1}"] if trace.prefix else []


def _told(trace: Trace, traces: Sequence[Trace]) -> list[str]:
    """What to say besides strategy and beginning: nothing where no other trace has the same."""
    named = (trace.strategy, len(trace.prefix))
    alike = [other for other in traces if (other.strategy, len(other.prefix)) == named]
    if len(alike) == 1 < len(traces):
        return []
    facts = [{**other.settings, "seed": other.seed} for other in alike if other is not trace]
    return _telling({**trace.settings, "seed": trace.seed}, facts)


# Said of a trace that stands alone, these would tell nothing.
_COMMON = {"max_new_tokens", "seed"}
_ABSENT = object()


def _telling(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that not all the others share, at most three; a trace alone shows its own."""
    if others:
        names = [n for n in own if any(other.get(n, _ABSENT) != own[n] for other in others)]
    else:
        names = [n for n in own if n not in _COMMON]
    words = [f"{name}={_short(own[name])}" for name in names[:3]] + ["…"] * (len(names) > 3)
    return [", ".join(words)] if words else []


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 24 else text[:23] + "…"
