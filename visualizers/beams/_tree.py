"""A trace as a tree: nodes with places, edges with widths, the tips that were returned.

Knows the parents, events and scores that were recorded. Refuses to infer any of them: an edge is
a recorded parent, never a guess from sorted scores. Draws nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.trace import Step, Trace
from visualizers.beams._tree_layout import Place, grown, placed


class Sums(NamedTuple):
    """How the score of a hypothesis comes about: ``before + score = total``, and ``total / length
    ** length_penalty = normalized``."""

    before: float
    score: float
    total: float
    length: int
    length_penalty: float
    normalized: float


class Node(NamedTuple):
    """One step, where it stands, and how many of the returned sequences pass through it."""

    step: Step
    place: Place
    texts: int
    sums: Sums | None = None

    @property
    def returned(self) -> bool:
        """Whether a returned sequence passes through it."""
        return self.texts > 0


class Edge(NamedTuple):
    """From a recorded parent to its child; the width grows with the model's own probability, or
    with the number of drawn texts that pass."""

    parent: int | None
    child: int
    start: Place
    end: Place
    width: int
    kind: str  # returned, kept or pruned
    group: int | None = None


class Tip(NamedTuple):
    """Where a returned sequence ends, or several alike, and its last token; rank 1 is the best."""

    place: Place
    token: str
    ranks: tuple[int, ...]
    score: float | None
    group: int | None = None


class Tree(NamedTuple):
    """One trace; ``texts`` counts those that were drawn side by side, None where they competed."""

    label: str
    texts: int | None
    root: Place
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    tips: tuple[Tip, ...]
    depth: int
    rows: float


def drawn(trace: Trace) -> bool:
    """Whether several texts were returned and no hypothesis had to beat another."""
    return len(trace.sequences) > 1 and not any("total" in step.notes for step in trace.steps)


def tree_of(trace: Trace, label: str) -> Tree:
    """Everything a drawing of the trace's steps needs."""
    passing = Counter(id for sequence in trace.sequences for id in sequence.steps)
    ends: dict[int, list[int]] = defaultdict(list)
    for rank, sequence in enumerate(trace.sequences, start=1):
        if sequence.steps:
            ends[sequence.steps[-1]].append(rank)
    places = _places(trace, {end: ranks[0] for end, ranks in ends.items()})
    nodes = tuple(
        Node(step, places[step.id], passing[step.id], _sums(step, trace, places))
        for step in trace.steps
    )
    texts = len(trace.sequences) if drawn(trace) else None
    return Tree(
        label=label,
        texts=texts,
        root=places[None],
        nodes=nodes,
        edges=tuple(_edge(node, places[node.step.parent], texts) for node in nodes),
        tips=tuple(
            Tip(
                places[end],
                trace.steps[end].token.text,
                tuple(ranks),
                trace.sequences[ranks[0] - 1].score,
                trace.steps[end].notes.get("group"),
            )
            for end, ranks in ends.items()
        ),
        depth=max(place.depth for place in places.values()),
        rows=1 + max(place.row for place in places.values()),
    )


def _places(trace: Trace, ranks: Mapping[int, int]) -> dict[int | None, Place]:
    """Where every step stands, and the root; a run that goes on from a text begins behind it."""
    parents = [step.parent for step in trace.steps]
    small = {step.id for step in trace.steps if step.event == "pruned"} - {*parents}
    places = placed(parents, grown(parents, ranks), small)
    written = len(trace.prefix)
    return {id: Place(place.depth + written, place.row) for id, place in places.items()}


def _sums(step: Step, trace: Trace, places: Mapping[int | None, Place]) -> Sums | None:
    """The arithmetic of a step's scores, where the run noted all of it."""
    before = 0.0 if step.parent is None else trace.steps[step.parent].notes.get("total")
    noted = (step.notes.get(name) for name in ("score", "total", "normalized"))
    numbers: list[Any] = [before, *noted, trace.settings.get("length_penalty")]
    if None in numbers:
        return None
    before, score, total, normalized, penalty = numbers
    length = places[step.id].depth - places[None].depth
    return Sums(before, score, total, length, penalty, normalized)


def _edge(node: Node, start: Place, texts: int | None) -> Edge:
    step = node.step
    share = node.texts / texts if texts else step.probability or 0.0
    return Edge(
        parent=step.parent,
        child=step.id,
        start=start,
        end=node.place,
        width=1 + round(5 * share),
        kind="returned" if node.returned else "pruned" if step.event == "pruned" else "kept",
        group=step.notes.get("group"),
    )
