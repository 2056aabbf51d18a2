"""Who shares the next pass over a model, and how much of it each gets.

Callers on threads of their own come back after every pass: who is early waits a little for those
that came lately, because a pass for many takes hardly longer than a pass for one. Where there is
not room for all, each gets an equal part, and what a caller with little does not need goes to those
with much; so nobody waits for the rest of somebody's many branches. Knows callers and what they ask
for. Refuses to know models.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.trie.backend import Place
from engine.trie.cell import Cell

ROOM = 48  # cells of several callers in one pass; a single caller is not held back
PATIENCE = 1.0  # of the last pass's time that somebody waits for the others


@dataclass(eq=False)
class Job:
    """What one caller waits for."""

    cells: list[Cell]  # those that are still to come
    places: dict[Cell, Place] = field(default_factory=dict)
    error: Exception | None = None
    caller: int = field(default_factory=threading.get_ident)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return not self.cells or self.error is not None


class PassBatching:
    """The callers of one model."""

    def __init__(self) -> None:
        self._arrival = threading.Condition()
        self._waiting: list[Job] = []
        # Who came for the last passes: two, or callers that missed each other would never meet.
        self._lately: deque[set[int]] = deque([set(), set()], maxlen=2)
        self._under_way = False
        self._ended = 0.0  # when the last pass did
        self._patience = 0.0  # seconds after that

    def __len__(self) -> int:
        """How many callers wait."""
        return len(self._waiting)

    @property
    def others(self) -> bool:
        """Whether somebody else came lately, or waits."""
        with self._arrival:
            return bool((self._regulars | self._present) - {threading.get_ident()})

    def join(self, job: Job) -> None:
        """Wait for a pass, and until those are there who came lately, but not for long."""
        with self._arrival:
            self._waiting.append(job)
            self._arrival.notify_all()
            while not job.done and not self._regulars <= self._present:
                left = self._ended + self._patience - time.perf_counter()
                if not self._under_way and left <= 0:
                    return
                self._arrival.wait(None if self._under_way else left)

    def wait(self, job: Job) -> None:
        """Wait until the job is done, or no pass is under way."""
        with self._arrival:
            self._arrival.wait_for(lambda: job.done or not self._under_way)

    def take(self) -> list[tuple[Job, list[Cell]]]:
        """Everybody's part of the pass that begins; who gets all is no longer waiting."""
        with self._arrival:
            parts = shares(self._waiting, ROOM)
            self._waiting = [job for job, part in parts if len(part) < len(job.cells)]
            self._lately.append({job.caller for job, _ in parts})
            self._under_way = True
            self._ended = time.perf_counter()
        return parts

    def end(self) -> None:
        """The pass has ended."""
        with self._arrival:
            now = time.perf_counter()
            self._patience, self._ended = PATIENCE * (now - self._ended), now
            self._under_way = False
            self._arrival.notify_all()

    @property
    def _regulars(self) -> set[int]:
        return set().union(*self._lately)

    @property
    def _present(self) -> set[int]:
        return {job.caller for job in self._waiting}


def shares(jobs: Sequence[Job], room: int) -> list[tuple[Job, list[Cell]]]:
    """What each job gets of a pass: all it asks for, or an equal part of what there is."""
    if len(jobs) == 1:
        return [(jobs[0], list(jobs[0].cells))]
    parts = []
    for index, job in enumerate(sorted(jobs, key=lambda job: len(job.cells))):
        count = min(len(job.cells), max(1, room // (len(jobs) - index)))
        parts.append((job, job.cells[:count]))
        room -= count
    return parts
