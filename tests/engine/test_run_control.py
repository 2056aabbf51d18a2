"""A run that a person holds: it waits, goes on by steps, stops, and is not charged for waiting."""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.trace import Trace, Update
from playground import Playground, RunControl
from tests.tiny import tiny

SOON = 30.0  # seconds a busy machine may take for what takes a moment
MOMENT = 0.15  # seconds in which a run that is not held would have gone on


@contextmanager
def running(
    pace: RunControl, lab: Playground | None = None, **shared: float
) -> Iterator["queue.Queue[Update | None]"]:
    """A run on a thread of its own: what it tells, and None once it is over."""
    news: queue.Queue[Update | None] = queue.Queue()
    lab = lab or Playground(tiny("llama"))
    settings = {"max_new_tokens": 40, "min_new_tokens": 40, **shared}

    def work() -> None:
        for update in lab.stream("one two", ["greedy"], stop=pace, **settings):
            news.put(update)
        news.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield news
    finally:
        pace.stop()
        thread.join(SOON)
        assert not thread.is_alive()


def told(news: "queue.Queue[Update | None]") -> list[Update]:
    """Everything a run tells until it is over."""
    return [update for update in iter(lambda: news.get(timeout=SOON), None) if update]


def nothing(news: "queue.Queue[Update | None]") -> bool:
    try:
        news.get(timeout=MOMENT)
    except queue.Empty:
        return True
    return False


def last(updates: list[Update]) -> Trace:
    assert updates[-1].trace is not None
    return updates[-1].trace


def test_a_stepped_run_writes_one_more_token_for_each_step() -> None:
    pace = RunControl(paused=True)
    with running(pace) as news:
        for length in range(1, 6):
            update = news.get(timeout=SOON)
            assert update is not None and [step.id for step in update.steps] == [length - 1]
            assert pace.paused and nothing(news)
            pace.step()


def test_several_steps_may_be_granted_at_once_and_add_up() -> None:
    pace = RunControl(paused=True)
    with running(pace) as news:
        news.get(timeout=SOON)
        pace.step(2)
        pace.step()
        for _ in range(3):
            assert news.get(timeout=SOON) is not None
        assert nothing(news)


def test_a_run_that_was_held_goes_on_to_its_end_with_the_same_text() -> None:
    lab = Playground(tiny("llama"))
    [alone] = lab.compare("one two", ["greedy"], max_new_tokens=40, min_new_tokens=40)
    pace = RunControl(paused=True)
    with running(pace, lab) as news:
        news.get(timeout=SOON)
        pace.play()
        assert not pace.paused
        trace = last(told(news))
    assert trace.sequences == alone.sequences and trace.stop == alone.stop


def test_a_playing_run_can_be_held_and_stepped() -> None:
    pace = RunControl()
    with running(pace, max_new_tokens=200, min_new_tokens=200) as news:
        first = news.get(timeout=SOON)
        pace.pause()
        assert first is not None and pace.paused
        while not nothing(news):  # what was under way
            pass
        pace.step()
        assert news.get(timeout=SOON) is not None and nothing(news)


def test_stopping_a_run_that_waits_ends_it_with_what_it_has() -> None:
    pace = RunControl(paused=True)
    with running(pace) as news:
        news.get(timeout=SOON)
        pace.step()
        news.get(timeout=SOON)
        pace.stop()
        trace = last(told(news))
    assert pace.stopped and trace.stop.rule == "cancelled" and trace.error is None
    assert len(trace.sequences[0].token_ids) == 2


def test_a_run_that_nobody_lets_go_on_is_ended_when_its_patience_is_over() -> None:
    pace = RunControl(paused=True, patience=MOMENT)
    with running(pace) as news:
        trace = last(told(news))
    assert pace.tired and pace.stopped and trace.stop.rule == "cancelled"
    assert len(trace.sequences[0].token_ids) == 1


def test_every_step_is_waited_for_with_new_patience_and_no_run_that_plays_is_ended() -> None:
    pace = RunControl(paused=True, patience=1.5)
    with running(pace) as news:
        for _ in range(4):  # together longer than that
            news.get(timeout=SOON)
            time.sleep(0.5)
            pace.step()
        pace.play()
        trace = last(told(news))
    assert not pace.tired and trace.stop.rule == "length"


def test_others_finish_while_one_waits() -> None:
    lab, pace = Playground(tiny("llama")), RunControl(paused=True)
    with running(pace, lab) as news:
        news.get(timeout=SOON)
        done = []
        other = threading.Thread(
            target=lambda: done.append(lab.compare("three", ["greedy", "sample"]))
        )
        other.start()
        other.join(SOON)
        assert done and all(trace.error is None for trace in done[0])
        assert nothing(news)


def test_waiting_is_not_charged() -> None:
    pace, waits = RunControl(paused=True), 0.6
    with running(pace, max_new_tokens=3, min_new_tokens=3) as news:
        for _ in range(2):
            news.get(timeout=SOON)
            time.sleep(waits)
            pace.step()
        trace = last(told(news))
    assert len(trace.ticks) == 3
    assert all(tick.ms >= 0 for tick in trace.ticks) and trace.seconds < waits


def test_waiting_uses_up_no_time_limit() -> None:
    pace, limit = RunControl(paused=True), 1.0
    with running(pace, max_new_tokens=3, min_new_tokens=3, max_time=limit) as news:
        news.get(timeout=SOON)
        time.sleep(1.5 * limit)
        pace.play()
        trace = last(told(news))
    assert trace.stop.rule == "length"


@pytest.mark.parametrize("paused", [True, False])
def test_a_pace_that_was_stopped_before_the_run_lets_no_tick_begin(paused: bool) -> None:
    pace = RunControl(paused=paused)
    pace.stop()
    lab = Playground(tiny("llama"))
    *_, end = lab.stream("one two", ["greedy"], stop=pace)
    assert end.trace is not None and end.trace.stop.rule == "cancelled"
    assert len(end.trace.steps) == 1
