"""A tuple whose items are built on first access.

Most of what a run records is never read, and building it takes longer than deciding the next token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class LazyTuple(Sequence[T_co]):
    """A tuple whose items are built on first access; its length may be known before."""

    def __init__(self, build: Callable[[], Sequence[T_co]], length: int | None = None) -> None:
        self._build = build
        self._length = length

    def _items(self) -> tuple[T_co, ...]:
        items = tuple(self._build())
        self._build = lambda: items
        return items

    @overload
    def __getitem__(self, at: int) -> T_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, at: int | slice) -> T_co | tuple[T_co, ...]:
        return self._items()[at]

    def __len__(self) -> int:
        return len(self._items()) if self._length is None else self._length

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._items() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._items())

    def __repr__(self) -> str:
        return repr(self._items())

    def __reduce__(self) -> tuple[Any, ...]:  # a pickle holds a plain tuple
        return tuple, (self._items(),)
