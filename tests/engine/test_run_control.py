"""Pausing, stepping and stopping a run; time in a pause is not counted."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.trace import Trace, Update
from playground import Playground, RunControl
from tests.tiny import tiny

TIMEOUT = 30.0  # seconds, generous for a busy machine
MOMENT = 0.15  # seconds in which a run that is not paused would have written a token


@contextmanager
def running(
    control: RunControl, lab: Playground | None = None, **shared: float
) -> Iterator["queue.Queue[Update | None]"]:
    """Start a run in a thread; the queue gets its updates, and None at the end."""
    updates: queue.Queue[Update | None] = queue.Queue()
    lab = lab or Playground(tiny("llama"))
    settings = {"max_new_tokens": 40, "min_new_tokens": 40, **shared}

    def work() -> None:
        for update in lab.stream("one two", ["greedy"], stop=control, **settings):
            updates.put(update)
        updates.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield updates
    finally:
        control.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def remaining(updates: "queue.Queue[Update | None]") -> list[Update]:
    """All updates until the run is over."""
    return [update for update in iter(lambda: updates.get(timeout=TIMEOUT), None) if update]


def silent(updates: "queue.Queue[Update | None]") -> bool:
    try:
        updates.get(timeout=MOMENT)
    except queue.Empty:
        return True
    return False


def last(updates: list[Update]) -> Trace:
    assert updates[-1].trace is not None
    return updates[-1].trace


def test_a_stepped_run_writes_one_more_token_for_each_step() -> None:
    control = RunControl(paused=True)
    with running(control) as updates:
        for length in range(1, 6):
            update = updates.get(timeout=TIMEOUT)
            assert update is not None and [step.id for step in update.steps] == [length - 1]
            assert control.paused and silent(updates)
            control.step()


def test_granted_steps_add_up() -> None:
    control = RunControl(paused=True)
    with running(control) as updates:
        updates.get(timeout=TIMEOUT)
        control.step(2)
        control.step()
        for _ in range(3):
            assert updates.get(timeout=TIMEOUT) is not None
        assert silent(updates)


def test_a_resumed_run_writes_the_same_text() -> None:
    lab = Playground(tiny("llama"))
    [alone] = lab.compare("one two", ["greedy"], max_new_tokens=40, min_new_tokens=40)
    control = RunControl(paused=True)
    with running(control, lab) as updates:
        updates.get(timeout=TIMEOUT)
        control.play()
        assert not control.paused
        trace = last(remaining(updates))
    assert trace.sequences == alone.sequences and trace.stop == alone.stop


def test_a_playing_run_can_be_paused_and_stepped() -> None:
    control = RunControl()
    with running(control, max_new_tokens=200, min_new_tokens=200) as updates:
        first = updates.get(timeout=TIMEOUT)
        control.pause()
        assert first is not None and control.paused
        while not silent(updates):  # the current tick
            pass
        control.step()
        assert updates.get(timeout=TIMEOUT) is not None and silent(updates)


def test_stopping_a_paused_run_keeps_its_text_so_far() -> None:
    control = RunControl(paused=True)
    with running(control) as updates:
        updates.get(timeout=TIMEOUT)
        control.step()
        updates.get(timeout=TIMEOUT)
        control.stop()
        trace = last(remaining(updates))
    assert control.stopped and trace.stop.rule == "cancelled" and trace.error is None
    assert len(trace.sequences[0].token_ids) == 2


def test_a_run_that_stays_paused_is_stopped_after_the_timeout() -> None:
    control = RunControl(paused=True, timeout=MOMENT)
    with running(control) as updates:
        trace = last(remaining(updates))
    assert control.timed_out and control.stopped and trace.stop.rule == "cancelled"
    assert len(trace.sequences[0].token_ids) == 1


def test_the_timeout_starts_again_at_each_step_and_never_ends_a_playing_run() -> None:
    control = RunControl(paused=True, timeout=1.5)
    with running(control) as updates:
        for _ in range(4):  # together longer than the timeout
            updates.get(timeout=TIMEOUT)
            time.sleep(0.5)
            control.step()
        control.play()
        trace = last(remaining(updates))
    assert not control.timed_out and trace.stop.rule == "length"


def test_other_runs_finish_while_one_is_paused() -> None:
    lab, control = Playground(tiny("llama")), RunControl(paused=True)
    with running(control, lab) as updates:
        updates.get(timeout=TIMEOUT)
        done = []
        other = threading.Thread(
            target=lambda: done.append(lab.compare("three", ["greedy", "sample"]))
        )
        other.start()
        other.join(TIMEOUT)
        assert done and all(trace.error is None for trace in done[0])
        assert silent(updates)


def test_time_in_a_pause_is_not_part_of_the_ticks() -> None:
    control, pause = RunControl(paused=True), 0.6
    with running(control, max_new_tokens=3, min_new_tokens=3) as updates:
        for _ in range(2):
            updates.get(timeout=TIMEOUT)
            time.sleep(pause)
            control.step()
        trace = last(remaining(updates))
    assert len(trace.ticks) == 3
    assert all(tick.ms >= 0 for tick in trace.ticks) and trace.seconds < pause


def test_time_in_a_pause_does_not_count_towards_max_time() -> None:
    control, limit = RunControl(paused=True), 1.0
    with running(control, max_new_tokens=3, min_new_tokens=3, max_time=limit) as updates:
        updates.get(timeout=TIMEOUT)
        time.sleep(1.5 * limit)
        control.play()
        trace = last(remaining(updates))
    assert trace.stop.rule == "length"


@pytest.mark.parametrize("paused", [True, False])
def test_a_control_stopped_before_the_run_allows_only_the_first_tick(paused: bool) -> None:
    control = RunControl(paused=paused)
    control.stop()
    lab = Playground(tiny("llama"))
    *_, end = lab.stream("one two", ["greedy"], stop=control)
    assert end.trace is not None and end.trace.stop.rule == "cancelled"
    assert len(end.trace.steps) == 1
