"""Batching of callers: a small request never waits for the rest of a large one."""

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.trie.batching import ROOM, Job, PassBatching, shares
from engine.trie.cell import Cell, top
from engine.trie.evaluator import PIECE
from playground import Playground
from tests.tiny import tiny


def cells(count: int) -> list[Cell]:
    return [top().child(token) for token in range(count)]


def waiting(batching: PassBatching, count: int) -> None:
    """Wait until ``count`` callers are waiting."""
    until = time.monotonic() + 30
    while len(batching) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 64))
def test_a_pass_is_shared_equally_among_requests_that_do_not_fit(counts, room) -> None:
    jobs = [Job(cells(count)) for count in counts]
    given_to = [len(part) for _, part in shares(jobs, room)]
    wanted = sorted(counts)
    if len(jobs) == 1:
        assert given_to == wanted  # a single caller gets everything
        return
    assert sum(given_to) <= max(room, len(jobs))
    most = max(given_to)
    for got, want in zip(given_to, wanted, strict=True):
        assert 1 <= got <= want
        # A request that was cut got as much as any other, except for rounding.
        assert got == want or got >= min(most, room // len(jobs))


def test_a_small_request_is_served_beside_a_large_one(
    passes: Callable[[Playground], list[int]],
) -> None:
    lab = Playground(tiny("llama"))
    evaluator = lab._backends.trie
    start = evaluator.backend.top(None)
    sizes = passes(lab)
    large = Job([start.child(token) for token in range(5, 5 + 2 * ROOM)])
    small = Job([start.child(token) for token in range(200, 202)])
    evaluator.batching._waiting += [large, small]
    with evaluator.lock:
        evaluator._pass()
        assert small.done and len(small.output_rows) == 2
        assert not large.done and len(large.output_rows) == ROOM - 2
        evaluator._pass()
    assert large.done and len(large.output_rows) == 2 * ROOM
    assert sizes == [ROOM, ROOM + 2]  # alone it is not limited


def test_recent_callers_are_waited_for_but_not_for_long() -> None:
    batching = PassBatching()
    batching._recent.append({threading.get_ident(), -1})
    batching._patience, batching._ended = 30.0, time.perf_counter()
    job = Job(cells(1))
    early = threading.Thread(target=batching.join, args=(job,))
    job.caller = -1
    mine = Job(cells(1))
    early.start()
    waiting(batching, 1)
    assert early.is_alive()  # it waits for this thread
    batching.join(mine)
    early.join(timeout=30)
    assert not early.is_alive() and len(batching) == 2
    batching._patience = 0.0
    late = PassBatching()
    late._recent.append({-1})
    late.join(Job(cells(1)))  # returns although the other caller never joins


@pytest.mark.parametrize("others", [True, False])
def test_a_long_prompt_is_evaluated_in_pieces_while_others_wait(
    others: bool, monkeypatch: pytest.MonkeyPatch, passes: Callable[[Playground], list[int]]
) -> None:
    monkeypatch.setattr(PassBatching, "others", others)
    lab = Playground(tiny("llama"))
    prompt = "a " * (PIECE + 4)
    sizes = passes(lab)
    [trace] = lab.compare(prompt, ["greedy"], max_new_tokens=2)
    length = len(trace.prompt_tokens)
    whole = [PIECE] * (length // PIECE) + [length % PIECE] * (length % PIECE > 0)
    assert sizes[: len(whole)] == whole if others else sizes[0] == length
    monkeypatch.setattr(PassBatching, "others", False)
    [alone] = Playground(tiny("llama")).compare(prompt, ["greedy"], max_new_tokens=2)
    assert trace.sequences[0].token_ids == alone.sequences[0].token_ids
