"""Stopping a long job: the caller sets an event, and the job checks it between two steps."""

from __future__ import annotations

import threading

from engine.run_control import RunControl

Stop = threading.Event | RunControl


class Stopped(Exception):
    """A job was stopped before it had a result."""


def check_stop(stop: Stop | None) -> None:
    """Raise `Stopped` if the event is set."""
    if stop is not None and stop.is_set():
        raise Stopped
