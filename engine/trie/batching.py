"""Batches the requests of several callers into one forward pass.

Each caller has its own thread and sends a request for every pass. An early one waits briefly for
the callers of the last passes, because a pass for many takes hardly longer than a pass for one. If
there is not room for all, each gets an equal share, and what a small request leaves goes to larger
ones: a caller with one cell never waits for another's many branches.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.trie.backend import OutputRow
from engine.trie.cell import Cell

ROOM = 48  # cells of several callers in one pass; a single caller is not held back
PATIENCE = 1.0  # a caller waits for others as long as the last pass took, times this


@dataclass(eq=False)
class Job:
    """The request of one caller."""

    cells: list[Cell]  # those not evaluated yet
    output_rows: dict[Cell, OutputRow] = field(default_factory=dict)
    error: Exception | None = None
    caller: int = field(default_factory=threading.get_ident)

    @property
    def done(self) -> bool:
        """Whether all cells are evaluated, or evaluating them failed."""
        return not self.cells or self.error is not None


class PassBatching:
    """Groups the callers of one model into passes."""

    def __init__(self) -> None:
        self._arrival = threading.Condition()
        self._waiting: list[Job] = []
        # The callers of the last two passes: with one, callers that just missed each other would
        # never share a pass.
        self._recent: deque[set[int]] = deque([set(), set()], maxlen=2)
        self._running = False
        self._ended = 0.0  # when the last pass ended
        self._patience = 0.0  # seconds to wait after that

    def __len__(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    @property
    def others(self) -> bool:
        """Whether another thread waits, or took part in the last passes."""
        with self._arrival:
            return bool((self._recent_callers | self._waiting_callers) - {threading.get_ident()})

    def join(self, job: Job) -> None:
        """Add a job, and wait a little for the callers of the last passes."""
        with self._arrival:
            self._waiting.append(job)
            self._arrival.notify_all()
            while not job.done and not self._recent_callers <= self._waiting_callers:
                left = self._ended + self._patience - time.perf_counter()
                if not self._running and left <= 0:
                    return
                self._arrival.wait(None if self._running else left)

    def wait(self, job: Job) -> None:
        """Wait until the job is done, or no pass is running."""
        with self._arrival:
            self._arrival.wait_for(lambda: job.done or not self._running)

    def take(self) -> list[tuple[Job, list[Cell]]]:
        """Start a pass: each job's share of it. A job that gets all its cells stops waiting."""
        with self._arrival:
            parts = shares(self._waiting, ROOM)
            self._waiting = [job for job, part in parts if len(part) < len(job.cells)]
            self._recent.append({job.caller for job, _ in parts})
            self._running = True
            self._ended = time.perf_counter()
        return parts

    def end(self) -> None:
        """End the pass."""
        with self._arrival:
            now = time.perf_counter()
            self._patience, self._ended = PATIENCE * (now - self._ended), now
            self._running = False
            self._arrival.notify_all()

    @property
    def _recent_callers(self) -> set[int]:
        return set().union(*self._recent)

    @property
    def _waiting_callers(self) -> set[int]:
        return {job.caller for job in self._waiting}


def shares(jobs: Sequence[Job], room: int) -> list[tuple[Job, list[Cell]]]:
    """Each job's share of a pass of at most ``room`` cells: all its cells, or an equal part."""
    if len(jobs) == 1:
        return [(jobs[0], list(jobs[0].cells))]
    parts = []
    for index, job in enumerate(sorted(jobs, key=lambda job: len(job.cells))):
        count = min(len(job.cells), max(1, room // (len(jobs) - index)))
        parts.append((job, job.cells[:count]))
        room -= count
    return parts
