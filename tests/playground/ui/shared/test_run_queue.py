"""The queue of comparisons: its order, its limits, and what it reports."""

import threading
from contextlib import ExitStack

import pytest

from engine.errors import PlaygroundError
from playground.ui.shared.run_queue import RunQueue
from tests.playground.ui.browsing import wait


class Visitors:
    """Comparisons that run until they are ended, each in a thread."""

    def __init__(self, queue):
        self.queue = queue
        self.started = []  # in the order in which they started
        self.places = {}  # the places reported to each
        self._ends = {}
        self._threads = []

    def compare(self, visitor, name=None):
        """Start a comparison; returns when it runs or waits."""
        name = name or visitor
        self.places[name], self._ends[name] = [], threading.Event()
        self._threads.append(threading.Thread(target=self._run, args=(visitor, name)))
        self._threads[-1].start()
        wait(lambda: name in self.started or self.places[name])

    def _run(self, visitor, name):
        with self.queue.turn(visitor, report=self.places[name].append):
            self.started.append(name)
            self._ends[name].wait(20)

    def end(self, name):
        before = len(self.started)
        self._ends[name].set()
        waiting = self.queue.waiting > 0
        wait(lambda: len(self.started) > before or not waiting)

    def close(self):
        for end in self._ends.values():
            end.set()
        for thread in self._threads:
            thread.join(20)


@pytest.fixture
def visitors():
    with ExitStack() as stack:

        def make(limit, waiting):
            made = Visitors(RunQueue(limit, waiting))
            stack.callback(made.close)
            return made

        yield make


def test_comparisons_beyond_the_limit_wait_in_the_order_they_came(visitors):
    all_ = visitors(limit=1, waiting=4)
    for name in "abc":
        all_.compare(name)
    assert all_.started == ["a"]
    assert [places[-1].ahead for places in (all_.places["b"], all_.places["c"])] == [1, 2]
    assert (all_.queue.running, all_.queue.waiting) == (1, 2)
    all_.end("a")
    assert all_.started == ["a", "b"]
    wait(lambda: all_.places["c"][-1].ahead == 1)
    all_.end("b")
    assert all_.started == ["a", "b", "c"]


def test_a_full_queue_refuses_at_once(visitors):
    all_ = visitors(limit=1, waiting=2)
    for name in "abc":
        all_.compare(name)
    with pytest.raises(PlaygroundError, match="2 comparisons are waiting; try again later"):
        all_.queue.turn("d").__enter__()
    assert all_.queue.waiting == 2


def test_visitors_take_turns_however_many_comparisons_one_of_them_starts(visitors):
    all_ = visitors(limit=1, waiting=8)
    for name in ("greedy 1", "greedy 2", "greedy 3"):
        all_.compare("greedy", name)
    all_.compare("modest", "modest 1")
    all_.compare("late")
    assert [all_.places[name][-1].ahead for name in ("greedy 2", "modest 1", "late")] == [1, 2, 3]
    for name in ("greedy 1", "greedy 2", "modest 1", "late"):
        all_.end(name)
    assert all_.started == ["greedy 1", "greedy 2", "modest 1", "late", "greedy 3"]


def test_a_visitor_holds_at_most_half_of_the_waiting_places(visitors):
    all_ = visitors(limit=1, waiting=4)
    for name in ("1", "2", "3"):
        all_.compare("greedy", name)
    with pytest.raises(PlaygroundError, match="2 of your comparisons are waiting"):
        all_.queue.turn("greedy").__enter__()
    all_.compare("modest")
    assert all_.queue.waiting == 3


def test_a_stopped_comparison_leaves_the_queue(visitors):
    all_ = visitors(limit=1, waiting=2)
    all_.compare("a")
    with all_.queue.turn("b", stopped=lambda: True):
        assert all_.queue.running == 1
    assert all_.queue.waiting == 0


def test_the_expected_wait_follows_from_comparisons_that_have_ended(visitors):
    all_ = visitors(limit=2, waiting=4)
    for name in "abc":
        all_.compare(name)
    assert all_.places["c"][-1].seconds is None
    all_.queue._durations.extend([10.0, 30.0])
    all_.compare("d")
    assert all_.places["d"][-1] == (2, 2 * 20.0 / 2)
