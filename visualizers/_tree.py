"""A trace as a tree: nodes with places, edges with widths, the tips that were returned.

Knows the parents, events and scores that were recorded. Refuses to infer any of them: an edge is
a recorded parent, never a guess from sorted scores. Draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from engine.trace import Step, Trace
from visualizers._tree_layout import Place, grown, placed


class Node(NamedTuple):
    """One step, where it stands, and whether a returned sequence passes through it."""

    step: Step
    place: Place
    returned: bool


class Edge(NamedTuple):
    """From a recorded parent to its child; the width grows with the model's own probability."""

    parent: int | None
    child: int
    start: Place
    end: Place
    width: int
    kind: str  # returned, kept or pruned


class Tip(NamedTuple):
    """Where a returned sequence ends, or several alike; rank 1 is the best."""

    place: Place
    ranks: tuple[int, ...]
    score: float | None


class Tree(NamedTuple):
    """One trace."""

    label: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    tips: tuple[Tip, ...]
    depth: int
    rows: float


def tree_of(trace: Trace, label: str) -> Tree:
    """Everything a drawing of the trace's steps needs."""
    returned = {id for sequence in trace.sequences for id in sequence.steps}
    ends: dict[int, list[int]] = defaultdict(list)
    for rank, sequence in enumerate(trace.sequences, start=1):
        if sequence.steps:
            ends[sequence.steps[-1]].append(rank)
    parents = [step.parent for step in trace.steps]
    small = {step.id for step in trace.steps if step.event == "pruned"} - {*parents}
    places = placed(parents, grown(parents, {end: ranks[0] for end, ranks in ends.items()}), small)
    return Tree(
        label=label,
        nodes=tuple(Node(step, places[step.id], step.id in returned) for step in trace.steps),
        edges=tuple(_edge(step, places, step.id in returned) for step in trace.steps),
        tips=tuple(
            Tip(places[end], tuple(ranks), trace.sequences[ranks[0] - 1].score)
            for end, ranks in ends.items()
        ),
        depth=max(place.depth for place in places.values()),
        rows=1 + max(place.row for place in places.values()),
    )


def _edge(step: Step, places: Mapping[int | None, Place], returned: bool) -> Edge:
    return Edge(
        parent=step.parent,
        child=step.id,
        start=places[step.parent],
        end=places[step.id],
        width=1 + round(5 * (step.probability or 0.0)),
        kind="returned" if returned else "pruned" if step.event == "pruned" else "kept",
    )
