"""Control of a run from outside: play, pause, step, stop."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable


class RunControl:
    """Pauses one stream of runs between its ticks. All methods may be called from any thread.

    The stream makes its first tick at once and calls `is_set` before every tick that follows. While
    it is paused it holds no lock, so other streams continue; but it keeps its positions in the
    model's cache, so it is stopped after a pause of ``timeout`` seconds.
    """

    def __init__(self, *, paused: bool = False, timeout: float | None = None) -> None:
        self.timeout = timeout
        self._changed = threading.Condition()
        self._granted = 0 if paused else math.inf  # ticks that may still start
        self._stopped = False
        self._timed_out = False
        self._listeners: list[Callable[..., None]] = []

    def subscribe(self, listener: Callable[..., None]) -> None:
        """Call ``listener`` with the name and the arguments of every command from now on."""
        self._listeners.append(listener)

    def play(self) -> None:
        """Run without pauses."""
        self._grant(math.inf)
        self._tell("play")

    def pause(self) -> None:
        """Pause before the next tick."""
        self._grant(0)
        self._tell("pause")

    def step(self, ticks: int = 1) -> None:
        """Run this many more ticks, then pause."""
        with self._changed:
            left = self._granted if self.paused else 0
            self._grant(left + ticks)
        self._tell("step", ticks)

    def stop(self) -> None:
        """End the run, also while it is paused."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._tell("stop")

    def time_out(self) -> None:
        """End the run because it was paused for too long."""
        self._timed_out = True
        self.stop()

    @property
    def stopped(self) -> bool:
        """Whether the run is to end."""
        return self._stopped

    @property
    def timed_out(self) -> bool:
        """Whether the run was stopped because it was paused for too long."""
        return self._timed_out

    @property
    def paused(self) -> bool:
        """Whether the run is paused, or will be after the granted steps."""
        return self._granted < math.inf

    def is_set(self) -> bool:
        """Whether to stop; waits while the run is paused, and uses up a granted tick.

        The loop calls this before every tick. The name is that of `threading.Event`, which may be
        given in place of a `RunControl`.
        """
        with self._changed:
            resumed = self._changed.wait_for(
                lambda: self._stopped or self._granted > 0, self.timeout
            )
            if not resumed:
                self.time_out()
            if not self._stopped:
                self._granted -= 1
            return self._stopped

    def _grant(self, ticks: float) -> None:
        with self._changed:
            self._granted = ticks
            self._changed.notify_all()

    def _tell(self, *command: str | int) -> None:
        for listener in self._listeners:
            listener(*command)
