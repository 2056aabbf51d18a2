"""The tree a search walked, drawn: what it kept, gave up, finished and returned.

Knows how a tree becomes marks and lines. Refuses to decide what is in it: `_tree` reads that from
the trace.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.trace import Trace
from visualizers import _style as style
from visualizers._register import view
from visualizers._style import Mark
from visualizers._tree import Node, Tip, Tree, tree_of
from visualizers._tree_layout import Place

# What a hypothesis can become, in the order of the legend; a chosen one was kept.
_MARKS = {
    "pruned": ("pruned", Mark("x", style.QUIET, 5)),
    "chosen": ("kept", Mark("circle", style.SKY, 8)),
    "finished": ("finished", Mark("square", style.ORANGE, 10)),
    "returned": ("returned", Mark("star", style.VERMILLION, 15)),
}
_OTHER = Mark("diamond", style.GREEN, 8)
_LINES = {"pruned": style.QUIET, "kept": "rgba(128,128,128,0.8)", "returned": style.BLUE}

_SCORES = {"score": "step score", "total": "total", "normalized": "normalised by length"}

_ROW, _COLUMN, _TOP, _BETWEEN, _BOTTOM = 48, 23, 110, 120, 100  # pixels
_HEADROOM = 1.5  # rows above the topmost line, for its slanted labels


class Forest(NamedTuple):
    """What the figure shows: one tree per trace that branched."""

    trees: tuple[Tree, ...]


def needs(trace: Trace) -> bool:
    """A trace in which hypotheses competed: two of them grew from the same place.

    A rejected draft beside the token that replaced it is no such pair.
    """
    siblings = Counter(step.parent for step in trace.steps if step.event in _MARKS)
    return any(count > 1 for count in siblings.values())


@view("beam_tree", title="Beam tree", order=10, tab="tree", needs=needs)
def beam_tree(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Every hypothesis the search kept, pruned, finished or returned; the thicker a line, the more
    probable its token, and the best sequence runs along the top.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Forest:
    named = zip(traces, style.labels(traces), strict=True)
    return Forest(tuple(tree_of(trace, label) for trace, label in named if needs(trace)))


def _figure(info: Forest, at: int | None = None) -> go.Figure:
    figure = _canvas(info)
    annotations = []
    for row, tree in enumerate(info.trees, start=1):
        figure.add_traces([*_edges(tree), *_nodes(tree)], rows=row, cols=1)
        annotations += _words(tree, "" if row == 1 else str(row))
    # All at once: one by one they take a second.
    figure.update_layout(annotations=annotations)
    _name_each_event_once(figure)
    return style.pointed(figure, at)


def _canvas(info: Forest) -> go.Figure:
    """The words and one pair of axes per tree; a row is equally high in all of them."""
    heights = [_ROW * (_HEADROOM + tree.rows) for tree in info.trees] or [10 * _ROW]
    inside = sum(heights) + _BETWEEN * (len(heights) - 1)
    words = ("Beam tree", "thicker: more probable", "tokens written", "branches")
    figure = make_subplots(
        rows=len(heights),
        row_heights=heights,
        vertical_spacing=_BETWEEN / inside,
        figure=style.blank(*words),
    )
    deepest = max((tree.depth for tree in info.trees), default=1)
    figure.update_layout(
        height=inside + _TOP + _BOTTOM,
        legend={"itemsizing": "constant"},
        margin={"t": _TOP, "b": _BOTTOM, "l": 50, "r": 90},  # the right is for scores at the tips
        meta=style.at_least(160 + _COLUMN * deepest),
    )
    figure.update_xaxes(title=words[2], showgrid=False, **style.counted(0, deepest))
    figure.update_yaxes(title=words[3], showgrid=False, showticklabels=False)
    for row, tree in enumerate(info.trees, start=1):
        figure.update_yaxes(range=[tree.rows, -_HEADROOM], row=row)
    return figure


def _edges(tree: Tree) -> list[go.Scatter]:
    """One plotly line per kind and width, since a line has one width; returned ones on top."""
    alike = defaultdict(list)
    for edge in tree.edges:
        alike[list(_LINES).index(edge.kind), edge.width].append(edge)
    return [
        go.Scatter(
            x=[x for edge in edges for x in (edge.start.depth, edge.end.depth, None)],
            y=[y for edge in edges for y in (edge.start.row, edge.end.row, None)],
            mode="lines",
            line={"color": _LINES[edges[0].kind], "width": width},
            hoverinfo="skip",
            showlegend=False,
        )
        for (_, width), edges in sorted(alike.items())
    ]


def _nodes(tree: Tree) -> list[go.Scatter]:
    alike = defaultdict(list)
    for node in tree.nodes:
        alike[node.step.event].append(node)
    return [_markers(event, nodes) for event, nodes in alike.items()]


def _markers(event: str, nodes: Sequence[Node]) -> go.Scatter:
    name, mark = _MARKS.get(event, (event, _OTHER))
    return go.Scatter(
        x=[node.place.depth for node in nodes],
        y=[node.place.row for node in nodes],
        mode="markers",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
        name=style.escape(name),
        legendgroup=event,
        legendrank=[*_MARKS, event].index(event),
        hoverinfo="text",
        hovertext=[_hover(node, name) for node in nodes],
    )


def _hover(node: Node, event: str) -> str:
    step, notes = node.step, dict(node.step.notes)
    lines = [
        f"<b>{style.spelled(step.token.text)}</b>  {style.escape(event)}",
        "not captured"
        if step.probability is None
        else f"model: {style.percent(step.probability)}, rank {step.rank}",
    ]
    for name, words in _SCORES.items():
        if isinstance(value := notes.pop(name, None), float | int):
            lines.append(f"{words}: {value:.3f}")
    lines += [style.escape(f"{name}: {value}") for name, value in notes.items()]
    return "<br>".join([*lines, f"tick {step.tick}"])


def _name_each_event_once(figure: go.Figure) -> None:
    named: set[str] = set()
    for markers in figure.select_traces({"mode": "markers"}):
        markers.showlegend = markers.legendgroup not in named
        named.add(markers.legendgroup)


def _words(tree: Tree, axis: str) -> list[dict[str, Any]]:
    """The tree's name, the spelling of every returned token, ranks and scores at the tips."""
    title = {
        "text": f"<b>{style.escape(tree.label)}</b>",
        **{"xref": f"x{axis} domain", "x": 0, "xanchor": "left"},
        **{"yref": f"y{axis} domain", "y": 1, "yanchor": "bottom"},
    }
    tokens = (
        _slanted(node.place, style.spelled(node.step.token.text, 10))
        for node in tree.nodes
        if node.returned
    )
    prompt = _slanted(Place(0, 0), "<i>prompt</i>")
    words = [title, prompt, *tokens, *map(_tip_label, tree.tips)]
    return [{"showarrow": False, "xref": f"x{axis}", "yref": f"y{axis}", **item} for item in words]


def _slanted(place: Place, text: str) -> dict[str, Any]:
    """A label above its node, slanted so that neighbours stay apart."""
    return {
        "text": text,
        **{"x": place.depth, "xanchor": "left", "xshift": -4},
        **{"y": place.row, "yanchor": "bottom", "yshift": 4},
        **{"textangle": -45, "font": {"size": 11}},
    }


def _tip_label(tip: Tip) -> dict[str, Any]:
    score = "" if tip.score is None else f" {tip.score:.3f}"
    ranks = " ".join(f"#{rank}" for rank in tip.ranks)
    return {
        "text": f"<b>{ranks}</b>{score}",
        **{"x": tip.place.depth, "xanchor": "left", "xshift": 10},
        **{"y": tip.place.row, "yanchor": "middle", "font": {"size": 12}},
    }
