"""The token trie that all runs on a model share: who is whose child, and who may be forgotten.

A cell is (parent, token). It lives as long as somebody holds it or one of its descendants, and
gives its pool position back when it goes: there is no cache to reorder, crop or rewind. Knows
nothing of tensors or models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import ref


class Cell:
    """One token at one place. The top of a trie is the cell that has no token."""

    __slots__ = (
        "__weakref__",
        "_children",
        "_released",
        "context",
        "depth",
        "parent",
        "slot",
        "token",
        "whole",
    )

    def __init__(self, parent: Cell | None, token: int, context: Any, released: deque[int]) -> None:
        self.parent = parent
        self.token = token
        self.depth: int = (
            -1 if parent is None else parent.depth + 1
        )  # the top stands before position 0
        self.context = (
            context  # what the whole trie is conditioned on (an encoder's output), or None
        )
        self.slot: int | None = None  # its position in the pool, once evaluated there
        self.whole = False  # evaluated by all layers there, not only by the first ones
        # What has gone stays as an empty reference until its parent goes: there are few, and a
        # dictionary that forgets by itself takes as long to make as all the rest of a cell.
        self._children: dict[int, ref[Cell]] = {}
        self._released = released

    def child(self, token: int) -> Cell:
        """The child for ``token``: the living one where there is one, so equal requests meet."""
        known = self._children.get(token)
        cell = known() if known else None
        if cell is None:
            cell = Cell(self, token, self.context, self._released)
            self._children[token] = ref(cell)
        return cell

    def bear(self, token: int, slot: int) -> Cell:
        """A new child for ``token``, evaluated at a position of its own: others meet it there,
        unless there is a living one that they have met."""
        cell = Cell(self, token, self.context, self._released)
        cell.slot, cell.whole = slot, True
        known = self._children.get(token)
        if known is None or known() is None:
            self._children[token] = ref(cell)
        return cell

    def descend(self, tokens: list[int]) -> Cell:
        """The cell at the end of a path of tokens below this one."""
        cell = self
        for token in tokens:
            cell = cell.child(token)
        return cell

    def ancestry(self) -> Iterator[Cell]:
        """This cell, its parent, and so on up to the first token."""
        cell = self
        while cell.parent is not None:
            yield cell
            cell = cell.parent

    def path(self) -> list[int]:
        """The tokens from the top down to this one."""
        return [cell.token for cell in self.ancestry()][::-1]

    def __del__(self) -> None:
        # On any thread, at any time: appending to a deque is atomic, the pool collects later.
        if self.slot is not None:
            self._released.append(self.slot)


def top(context: Any = None, released: deque[int] | None = None) -> Cell:
    """A new, empty trie; positions of cells that go are appended to ``released``."""
    return Cell(None, -1, context, deque() if released is None else released)


def up_to(cells: Iterable[Cell], known: Callable[[Cell], bool]) -> list[Cell]:
    """The cells and their ancestors up to the first known ones, parents before children."""
    found: dict[Cell, None] = {}
    for cell in cells:
        branch = []
        for ancestor in cell.ancestry():
            if ancestor is not cell and (known(ancestor) or ancestor in found):
                break
            branch.append(ancestor)
        found.update(dict.fromkeys(reversed(branch)))
    return list(found)


def lineage(cells: Sequence[Cell]) -> tuple[list[Cell], bytearray]:
    """Of each cell, parents before children, the last ancestor that is none of them; and, cell by
    cell, a byte for each of them that says whether it is an ancestor or the cell itself."""
    order = {cell: row for row, cell in enumerate(cells)}
    above: list[Cell] = []
    inside: list[bytearray] = []
    for row, cell in enumerate(cells):
        assert cell.parent is not None, "the top is known"
        at = order.get(cell.parent)
        above.append(cell.parent if at is None else above[at])
        inside.append(bytearray(len(cells)) if at is None else inside[at][:])
        inside[row][row] = True
    return above, bytearray().join(inside)
