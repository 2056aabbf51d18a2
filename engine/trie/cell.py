"""The cells of the token trie that all runs on a model share.

A cell is (parent, token). It lives as long as something refers to it or to one of its descendants,
and releases its slot in the pool when it is freed: there is no cache to reorder, crop or rewind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import ref


class Cell:
    """One token of the trie. The top is the cell without a token."""

    __slots__ = (
        "__weakref__",
        "_children",
        "_released",
        "complete",
        "context",
        "depth",
        "parent",
        "slot",
        "token",
    )

    def __init__(self, parent: Cell | None, token: int, context: Any, released: deque[int]) -> None:
        self.parent = parent
        self.token = token
        self.depth: int = -1 if parent is None else parent.depth + 1  # the top is before position 0
        self.context = context  # what the trie is conditioned on (an encoder's output), or None
        self.slot: int | None = None  # in the pool, once evaluated there
        self.complete = False  # evaluated by all layers, not only by the first ones
        # A freed child stays as a dead reference until its parent is freed: there are few, and a
        # WeakValueDictionary takes as long to create as the rest of a cell.
        self._children: dict[int, ref[Cell]] = {}
        self._released = released

    def child(self, token: int) -> Cell:
        """The child for ``token``; equal requests share the living one."""
        known = self._children.get(token)
        cell = known() if known else None
        if cell is None:
            cell = Cell(self, token, self.context, self._released)
            self._children[token] = ref(cell)
        return cell

    def add_evaluated_child(self, token: int, slot: int) -> Cell:
        """A new child for ``token`` that is evaluated already, in its own slot.

        Later requests share it, unless another child for that token is alive.
        """
        cell = Cell(self, token, self.context, self._released)
        cell.slot, cell.complete = slot, True
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
        # On any thread, at any time: appending to a deque is atomic; the pool collects later.
        if self.slot is not None:
            self._released.append(self.slot)


def top(context: Any = None, released: deque[int] | None = None) -> Cell:
    """A new, empty trie; slots of freed cells are appended to ``released``."""
    return Cell(None, -1, context, deque() if released is None else released)


def with_missing_ancestors(
    cells: Iterable[Cell], is_evaluated: Callable[[Cell], bool]
) -> list[Cell]:
    """The cells and their ancestors up to the first evaluated ones, parents before children."""
    found: dict[Cell, None] = {}
    for cell in cells:
        branch = []
        for ancestor in cell.ancestry():
            if ancestor is not cell and (is_evaluated(ancestor) or ancestor in found):
                break
            branch.append(ancestor)
        found.update(dict.fromkeys(reversed(branch)))
    return list(found)


def ancestor_masks(cells: Sequence[Cell]) -> tuple[list[Cell], bytearray]:
    """For each cell, parents before children, the nearest ancestor that is not among them; and row
    by row, a byte for each of them: whether it is an ancestor or the cell itself."""
    order = {cell: row for row, cell in enumerate(cells)}
    above: list[Cell] = []
    inside: list[bytearray] = []
    for row, cell in enumerate(cells):
        assert cell.parent is not None, "the top is never evaluated"
        at = order.get(cell.parent)
        above.append(cell.parent if at is None else above[at])
        inside.append(bytearray(len(cells)) if at is None else inside[at][:])
        inside[row][row] = True
    return above, bytearray().join(inside)
