"""Where the nodes of a tree go: one column per depth, and no edge ever crosses another.

Knows parents. Refuses to know tokens, scores and figures.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

Children = Mapping[int | None, Sequence[int]]  # of every node; None is the root
_SLACK = 1  # rows more than the fullest column needs: lines bend less


class Place(NamedTuple):
    """A column and a row; the root stands at (0, 0)."""

    depth: int
    row: float


def grown(parents: Sequence[int | None], ranks: Mapping[int, int]) -> Children:
    """The children of every node, first the one that carries its line on.

    The line goes to the best rank, where a tip below has one, else to the deepest end. The other
    children stand by height, so that short branches stay close to the line they left.
    """
    height = [0] * len(parents)
    best = [float(ranks.get(node, math.inf)) for node in range(len(parents))]
    children: dict[int | None, list[int]] = defaultdict(list)
    for node in reversed(range(len(parents))):  # children come after their parents
        parent = parents[node]
        children[parent].append(node)
        if parent is not None:
            height[parent] = max(height[parent], height[node] + 1)
            best[parent] = min(best[parent], best[node])
    for nodes in children.values():
        first = min(nodes, key=lambda node: (best[node], -height[node], node))
        nodes.sort(key=lambda node: (node != first, height[node], node))
    return children


def placed(
    parents: Sequence[int | None], children: Children, small: Set[int]
) -> dict[int | None, Place]:
    """The place of every node, the root included; ``small`` leaves go between the rows.

    The order within a column is that of a depth-first walk, which is why edges cannot cross.
    """
    columns = _columns(children)
    fullest = max((sum(node not in small for node in column) for column in columns), default=0)
    places: dict[int | None, Place] = {None: Place(0, 0)}
    for depth, column in enumerate(columns, start=1):
        near = {node: places[parents[node]].row for node in column}
        rows = _rows([node for node in column if node not in small], near, fullest + _SLACK)
        rows |= _between(column, rows, near)
        places |= {node: Place(depth, rows[node]) for node in column}
    return places


def _columns(children: Children) -> list[list[int]]:
    """The nodes of every depth, in the order of a depth-first walk."""
    columns: list[list[int]] = []
    waiting = [(node, 0) for node in reversed(children.get(None, ()))]
    while waiting:
        node, depth = waiting.pop()
        if depth == len(columns):
            columns.append([])
        columns[depth].append(node)
        waiting += [(child, depth + 1) for child in reversed(children.get(node, ()))]
    return columns


def _rows(nodes: Sequence[int], near: Mapping[int, float], width: int) -> dict[int, float]:
    """A row of its own for each node: its parent's, unless those above or below need the room."""
    rows: dict[int, float] = {}
    above = -1.0
    for place, node in enumerate(nodes):
        above = min(max(above + 1, near[node]), width - len(nodes) + place)
        rows[node] = above
    return rows


def _between(
    column: Sequence[int], rows: Mapping[int, float], near: Mapping[int, float]
) -> dict[int, float]:
    """Places within the gaps that the rows leave, near the parents."""
    gaps: dict[int, list[int]] = defaultdict(list)
    passed = 0
    for node in column:
        if node in rows:
            passed += 1
        else:
            gaps[passed].append(node)
    edges = [-1.0, *rows.values(), math.inf]
    between: dict[int, float] = {}
    for gap, nodes in gaps.items():
        start = min(max(edges[gap], near[nodes[0]]), edges[gap + 1] - 1)
        for place, node in enumerate(nodes, start=1):
            between[node] = start + place / (len(nodes) + 1)
    return between
