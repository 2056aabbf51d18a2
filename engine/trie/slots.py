"""Positions in a pool: which are taken, which come back, and how far up they reach.

Knows numbers only. Refuses to know what is kept at a position.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from engine.errors import PlaygroundError

NOBODY = 0  # the position padding writes to: it is never given out
LATELY = 16  # comparisons whose room is kept for the next: to make it anew takes a while


class Slots:
    """The positions of one pool. Low ones are given first: that keeps the visible part short."""

    def __init__(self, capacity: int, limit: int) -> None:
        self.capacity = capacity
        self.released: deque[int] = deque()  # on any thread, at any time: appending is atomic
        self._least, self._limit = capacity, limit
        self._free = list(range(NOBODY + 1, capacity))  # a heap
        self._taken = bytearray(capacity)
        self._highest = NOBODY
        self._peak = NOBODY  # the highest that was taken in this comparison
        self._peaks: deque[int] = deque(maxlen=LATELY)  # and in those before

    @property
    def used(self) -> int:
        """How many are taken."""
        self._collect()
        return self.capacity - 1 - len(self._free)

    @property
    def reach(self) -> int:
        """How much of the pool is in use: up to the highest position taken."""
        return self._highest + 1

    def missing(self, count: int) -> int:
        """How large the pool must get for ``count`` positions to be free; 0 where they are."""
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
        """How small the pool may get now that a comparison has ended: none of the last few needed
        more. 0 where it is not too large."""
        self._collect()
        self._peaks.append(self._peak)
        self._peak = self._highest
        wanted = self._least
        while wanted <= max(self._peaks):
            wanted *= 2
        return wanted if wanted < self.capacity else 0

    def resize(self, capacity: int) -> None:
        """Have more of them, or fewer, of which none is taken."""
        self._free = [slot for slot in self._free if slot < capacity]
        self._free += range(self.capacity, capacity)
        heapq.heapify(self._free)
        self._taken = self._taken[:capacity].ljust(capacity, b"\0")
        self.capacity = capacity

    def take(self, count: int) -> list[int]:
        """Give out positions that are free."""
        slots = [heapq.heappop(self._free) for _ in range(count)]
        for slot in slots:
            self._taken[slot] = True
        self._highest = max([self._highest, *slots])
        self._peak = max(self._peak, self._highest)
        return slots

    def release(self, slots: Iterable[int]) -> None:
        """Take some back, when there is time."""
        self.released.extend(slots)

    def _collect(self) -> None:
        while self.released:
            slot = self.released.popleft()
            self._taken[slot] = False
            heapq.heappush(self._free, slot)
        while self._highest > NOBODY and not self._taken[self._highest]:
            self._highest -= 1
