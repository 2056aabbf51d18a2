"""The slots of a pool: which are taken, which are free, and how far up they reach."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from engine.errors import PlaygroundError

PADDING = 0  # the slot that padding writes to: it is never given out
REMEMBERED = 16  # comparisons whose size the pool keeps: resizing takes a while


class Slots:
    """The slots of one pool. Low ones are given out first: that keeps the visible part short."""

    def __init__(self, capacity: int, limit: int) -> None:
        self.capacity = capacity
        self.released: deque[int] = deque()  # by any thread, at any time: appending is atomic
        self._least, self._limit = capacity, limit
        self._free = list(range(PADDING + 1, capacity))  # a heap
        self._taken = bytearray(capacity)
        self._highest = PADDING
        self._peak = PADDING  # the highest slot taken in this comparison
        self._peaks: deque[int] = deque(maxlen=REMEMBERED)  # and in those before it

    @property
    def used(self) -> int:
        """How many slots are taken."""
        self._collect()
        return self.capacity - 1 - len(self._free)

    @property
    def reach(self) -> int:
        """How many slots there are up to the highest one taken."""
        return self._highest + 1

    def missing(self, count: int) -> int:
        """The capacity at which ``count`` slots are free; 0 if they are free now."""
        self._collect()
        needed = self.capacity + count - len(self._free)
        if needed <= self.capacity:
            return 0
        if needed > self._limit:
            raise PlaygroundError(
                f"this comparison needs {needed} positions, for the tokens of the prompt and of"
                f" every branch; the limit is {self._limit}: shorten the prompt or use fewer beams"
            )
        return min(max(needed, 2 * self.capacity), self._limit)

    def spare(self) -> int:
        """The capacity to shrink to at the end of a comparison: none of the last ones needed more.
        0 if the pool is not too large."""
        self._collect()
        self._peaks.append(self._peak)
        self._peak = self._highest
        wanted = self._least
        while wanted <= max(self._peaks):
            wanted *= 2
        return wanted if wanted < self.capacity else 0

    def resize(self, capacity: int) -> None:
        """Add slots, or remove slots that are not taken."""
        self._free = [slot for slot in self._free if slot < capacity]
        self._free += range(self.capacity, capacity)
        heapq.heapify(self._free)
        self._taken = self._taken[:capacity].ljust(capacity, b"\0")
        self.capacity = capacity

    def take(self, count: int) -> list[int]:
        """Give out free slots."""
        slots = [heapq.heappop(self._free) for _ in range(count)]
        for slot in slots:
            self._taken[slot] = True
        self._highest = max([self._highest, *slots])
        self._peak = max(self._peak, self._highest)
        return slots

    def release(self, slots: Iterable[int]) -> None:
        """Take slots back; they are collected later."""
        self.released.extend(slots)

    def _collect(self) -> None:
        while self.released:
            slot = self.released.popleft()
            self._taken[slot] = False
            heapq.heappush(self._free, slot)
        while self._highest > PADDING and not self._taken[self._highest]:
            self._highest -= 1
