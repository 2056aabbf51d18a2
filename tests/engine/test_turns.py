"""Callers that share passes: nobody waits for the rest of somebody's many branches."""

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Model
from engine.reader import PIECE
from engine.trie import Cell, top
from engine.turns import ROOM, Job, Turns, shares
from playground import Playground
from tests.tiny import tiny


def cells(count: int) -> list[Cell]:
    return [top().child(token) for token in range(count)]


def waiting(turns: Turns, count: int) -> None:
    """Wait until so many callers wait."""
    until = time.monotonic() + 30
    while len(turns) < count:
        assert time.monotonic() < until
        time.sleep(0.001)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 64))
def test_room_is_parted_so_that_nobody_has_less_because_somebody_has_more(asked, room) -> None:
    jobs = [Job(cells(count)) for count in asked]
    given_to = [len(part) for _, part in shares(jobs, room)]
    wanted = sorted(asked)
    if len(jobs) == 1:
        assert given_to == wanted  # there is nobody to be fair to
        return
    assert sum(given_to) <= max(room, len(jobs))
    most = max(given_to)
    for got, want in zip(given_to, wanted, strict=True):
        assert 1 <= got <= want
        # Who got less than asked for got no less than anybody else, but for the rounding.
        assert got == want or got >= min(most, room // len(jobs))


def test_a_caller_with_little_is_served_at_once_beside_one_with_much(
    passes: Callable[[Model], list[int]],
) -> None:
    lab = Playground(tiny("llama"))
    reader = lab._readers.trie
    start = reader.backend.top(None)
    sizes = passes(lab.model)
    much = Job([start.child(token) for token in range(5, 5 + 2 * ROOM)])
    little = Job([start.child(token) for token in range(200, 202)])
    reader.turns._waiting += [much, little]
    with reader.lock:
        reader._pass()
        assert little.done and len(little.places) == 2
        assert not much.done and len(much.places) == ROOM - 2
        reader._pass()
    assert much.done and len(much.places) == 2 * ROOM
    assert sizes == [ROOM, ROOM + 2]  # once it is alone it is not held back


def test_who_came_lately_is_waited_for_and_who_stays_away_is_not_waited_for_long() -> None:
    turns = Turns()
    turns._lately.append({threading.get_ident(), -1})
    turns._patience, turns._ended = 30.0, time.perf_counter()
    job = Job(cells(1))
    early = threading.Thread(target=turns.join, args=(job,))
    job.caller = -1
    mine = Job(cells(1))
    early.start()
    waiting(turns, 1)
    assert early.is_alive()  # waits for this thread
    turns.join(mine)
    early.join(timeout=30)
    assert not early.is_alive() and len(turns) == 2
    turns._patience = 0.0
    late = Turns()
    late._lately.append({-1})
    late.join(Job(cells(1)))  # returns, though the other one never comes


@pytest.mark.parametrize("others", [True, False])
def test_a_long_prompt_is_read_in_pieces_where_others_wait(
    others: bool, monkeypatch: pytest.MonkeyPatch, passes: Callable[[Model], list[int]]
) -> None:
    monkeypatch.setattr(Turns, "others", others)
    lab = Playground(tiny("llama"))
    prompt = "a " * (PIECE + 4)
    sizes = passes(lab.model)
    [trace] = lab.compare(prompt, ["greedy"], max_new_tokens=2)
    length = len(trace.prompt_tokens)
    whole = [PIECE] * (length // PIECE) + [length % PIECE] * (length % PIECE > 0)
    assert sizes[: len(whole)] == whole if others else sizes[0] == length
    monkeypatch.setattr(Turns, "others", False)
    [alone] = Playground(tiny("llama")).compare(prompt, ["greedy"], max_new_tokens=2)
    assert trace.sequences[0].token_ids == alone.sequences[0].token_ids
