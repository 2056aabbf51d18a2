"""The tree a search walked, drawn: what it kept, gave up, finished and returned.

Knows how a tree becomes marks and lines. Refuses to decide what is in it: `_tree` reads that from
the trace.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.beams._tree import Edge, Node, Tree, drawn, tree_of
from visualizers.beams._tree_labels import hover, labels, title
from visualizers.registry import view
from visualizers.shared import runs, style
from visualizers.shared.panels import panel_note, stacked_panels
from visualizers.shared.style import Mark

# What a hypothesis can become, in the order of the legend; a chosen one was kept.
_MARKS = {
    "pruned": ("pruned", Mark("x", style.MUTED, 5)),
    "chosen": ("kept", Mark("circle", style.SKY, 8)),
    "finished": ("finished", Mark("square", style.ORANGE, 10)),
    "returned": ("returned", Mark("star", style.VERMILLION, 15)),
}
_OTHER = Mark("diamond", style.GREEN, 8)
_LINES = {"pruned": style.MUTED, "kept": "rgba(128,128,128,0.8)", "returned": style.BLUE}

# A group of beams has a colour of its own, rows of its own and its number at the tips.
_GROUPS = (style.BLUE, style.GREEN, style.PURPLE, style.ORANGE, style.SKY, style.VERMILLION)

_ROW, _COLUMN, _TOP, _BETWEEN, _BOTTOM = 48, 28, 110, 120, 100  # pixels
_HEADROOM = 1.5  # rows above the topmost line, for its slanted labels


class Forest(NamedTuple):
    """What the figure shows: one tree per trace that branched or has several texts."""

    trees: tuple[Tree, ...]


def needs(trace: Trace) -> bool:
    """A trace in which hypotheses competed, two of them from the same place, or several were drawn.

    A rejected draft beside the token that replaced it is no such pair.
    """
    if drawn(trace):
        return True
    siblings = Counter(step.parent for step in trace.steps if step.event in _MARKS)
    return any(count > 1 for count in siblings.values())


@view("beam_tree", title="Beam tree", order=10, tab="tree", needs=needs)
def beam_tree(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Every hypothesis the search kept, pruned, finished or returned; the thicker a line, the more
    probable its token, and the best sequence runs along the top. Groups of beams have colours
    of their own. Texts that were drawn side by side make one tree: the thicker a line, the more
    of them pass there, and ×3 says that three do.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Forest:
    named = zip(traces, runs.labels(traces), strict=True)
    return Forest(tuple(tree_of(trace, label) for trace, label in named if needs(trace)))


def _figure(info: Forest, at: int | None = None) -> go.Figure:
    figure = _canvas(info)
    annotations = []
    for row, tree in enumerate(info.trees, start=1):
        figure.add_traces([*_edges(tree), *_nodes(tree)], rows=row, cols=1)
        annotations += [panel_note(row, title(tree)), *labels(tree, row)]
    groups = {edge.group for tree in info.trees for edge in tree.edges if edge.group is not None}
    figure.add_traces([_group_key(group) for group in sorted(groups)])
    # All at once: one by one they take a second.
    figure.update_layout(annotations=annotations)
    _name_each_event_once(figure)
    return style.mark_position(figure, at)


def _canvas(info: Forest) -> go.Figure:
    """The words and one pair of axes per tree; a row is equally high in all of them."""
    heights = [_ROW * (_HEADROOM + tree.rows) for tree in info.trees] or [10 * _ROW]
    words = ("thicker: more probable", "tokens written", "branches")
    figure = stacked_panels(*words, heights, top=_TOP, between=_BETWEEN, bottom=_BOTTOM)
    deepest = max((tree.depth for tree in info.trees), default=1)
    figure.update_layout(
        legend={"itemsizing": "constant"},
        margin={"l": 50, "r": 180},  # the right is for scores at the tips
        meta=style.min_width(250 + _COLUMN * deepest),
    )
    figure.update_xaxes(showgrid=False, **style.integer_axis(0, deepest))
    figure.update_yaxes(showgrid=False, showticklabels=False)
    for row, tree in enumerate(info.trees, start=1):
        figure.update_yaxes(range=[tree.rows, -_HEADROOM], row=row)
    return figure


def _edges(tree: Tree) -> list[go.Scatter]:
    """One plotly line per kind, group and width, since a line has one look; returned ones on
    top."""
    alike: dict[tuple[int, int, int], list[Edge]] = defaultdict(list)
    for edge in tree.edges:
        group = -1 if edge.group is None else edge.group
        alike[list(_LINES).index(edge.kind), group, edge.width].append(edge)
    return [
        go.Scatter(
            x=[x for edge in edges for x in (edge.start.depth, edge.end.depth, None)],
            y=[y for edge in edges for y in (edge.start.row, edge.end.row, None)],
            mode="lines",
            line={"color": _colour(edges[0]), "width": width},
            hoverinfo="skip",
            showlegend=False,
        )
        for (_, _, width), edges in sorted(alike.items(), key=lambda item: item[0])
    ]


def _colour(edge: Edge) -> str:
    """Its group's colour, if it has one; faint where the line was kept and not returned."""
    if edge.group is None or edge.kind == "pruned":
        return _LINES[edge.kind]
    colour = _of_group(edge.group)
    red, green, blue = bytes.fromhex(colour[1:])
    return colour if edge.kind == "returned" else f"rgba({red},{green},{blue},0.5)"


def _of_group(group: int) -> str:
    return _GROUPS[group % len(_GROUPS)]


def _group_key(group: int) -> go.Scatter:
    """The legend's line for a group."""
    name, line = f"group {group + 1}", {"color": _of_group(group), "width": 3}
    return go.Scatter(x=[None], y=[None], mode="lines", line=line, name=name, showlegend=True)


def _nodes(tree: Tree) -> list[go.Scatter]:
    alike = defaultdict(list)
    for node in tree.nodes:
        alike[node.step.event].append(node)
    return [_markers(event, nodes, tree) for event, nodes in alike.items()]


def _markers(event: str, nodes: Sequence[Node], tree: Tree) -> go.Scatter:
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
        hovertext=[hover(node, name, tree.texts) for node in nodes],
    )


def _name_each_event_once(figure: go.Figure) -> None:
    named: set[str] = set()
    for markers in figure.select_traces({"mode": "markers"}):
        markers.showlegend = markers.legendgroup not in named
        named.add(markers.legendgroup)
