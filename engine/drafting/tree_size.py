"""How large trees of drafts get."""

from __future__ import annotations

from typing import NamedTuple

from engine.drafting.heads import Heads

MAX_CHILDREN = 16  # most tokens considered after a path, and paths continued; a power of two
START = 3  # numbers that say where a tree begins: the token it follows, that token's parent's depth
# and pool position


class TreeSize(NamedTuple):
    """The limits of a tree."""

    tokens: int
    depth: int  # tokens ahead
    min_probability: float = 0.0  # of a path, by the draft heads


def breadth(heads: Heads, size: TreeSize) -> tuple[int, int]:
    """How many tokens are considered after a path, and how many paths are continued."""
    children = min(size.tokens, MAX_CHILDREN, len(heads.kept))
    return children, max(1, min(children, size.tokens // 2))
