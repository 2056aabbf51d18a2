"""A person's hand on a run: play, pause, one step, stop.

Knows how many ticks were granted, and lets the thread that runs wait for more. Refuses to know
what a tick does.
"""

from __future__ import annotations

import math
import threading


class RunControl:
    """Holds one stream of runs between its ticks; all methods may be called from any thread.

    A run makes its first decision as it begins and asks before every tick that follows. While it
    waits it holds no lock, so others' runs go on. But it holds its place in the model's memory: a
    run that has waited for ``patience`` seconds is stopped.
    """

    def __init__(self, *, paused: bool = False, patience: float | None = None) -> None:
        self.patience = patience
        self._changed = threading.Condition()
        self._granted = 0 if paused else math.inf  # ticks that may still begin
        self._stopped = False
        self._tired = False

    def play(self) -> None:
        """Let the run go on by itself."""
        self._grant(math.inf)

    def pause(self) -> None:
        """Hold the run before its next tick."""
        self._grant(0)

    def step(self, ticks: int = 1) -> None:
        """Let so many more ticks begin, then hold the run."""
        with self._changed:
            left = self._granted if self.paused else 0
            self._grant(left + ticks)

    def stop(self) -> None:
        """End the run, also while it waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        """Whether the run was told to end."""
        return self._stopped

    @property
    def tired(self) -> bool:
        """Whether the run was stopped because nobody let it go on in time."""
        return self._tired

    @property
    def paused(self) -> bool:
        """Whether the run waits for a person before it goes on, now or after the steps granted."""
        return self._granted < math.inf

    def is_set(self) -> bool:
        """What the loop asks before a tick, as it would ask an event: whether to stop.

        Waits while nothing is granted; to go on uses up one of the ticks granted.
        """
        with self._changed:
            called = self._changed.wait_for(
                lambda: self._stopped or self._granted > 0, self.patience
            )
            if not called:
                self._stopped = self._tired = True
            if not self._stopped:
                self._granted -= 1
            return self._stopped

    def _grant(self, ticks: float) -> None:
        with self._changed:
            self._granted = ticks
            self._changed.notify_all()
