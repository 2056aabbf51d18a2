"""Things that are made when somebody first looks at them.

Of most of what a run tells nobody ever looks at more than a little, and to make it takes longer
than to decide what comes next. Knows when to make. Refuses to know what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class LazyTuple(Sequence[T_co]):
    """A tuple that is not there yet; how long it will be may be known before."""

    def __init__(self, make: Callable[[], Sequence[T_co]], length: int | None = None) -> None:
        self._make = make
        self._length = length

    def _all(self) -> tuple[T_co, ...]:
        made = tuple(self._make())
        self._make = lambda: made
        return made

    @overload
    def __getitem__(self, at: int) -> T_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, at: int | slice) -> T_co | tuple[T_co, ...]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all()) if self._length is None else self._length

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Any, ...]:  # elsewhere it is there
        return tuple, (self._all(),)
