"""Runs, feeds and forks without a browser, on scripted labs."""

import json
import queue
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Candidate, Distribution, Stop, Token, Update
from playground import Playground
from playground.ui.compare.forks import at_edit, at_token
from playground.ui.compare.runs import Runs
from playground.ui.compare.stream import routes
from playground.ui.shared import throttle
from playground.ui.shared.comparison import RunRequest
from playground.ui.shared.live_feed import Feed, stop_text
from playground.ui.shared.model_loading import Labs, Loader
from playground.ui.shared.monitoring import Monitoring
from playground.ui.shared.run_queue import RunQueue
from playground.ui.shared.throttle import End, batches, read_ahead
from tests.playground.ui.browsing import run_async, wait
from tests.playground.ui.scripted_page import EVIL, Lab, step
from tests.tiny import tiny

# Model loading


def test_loading_a_model_can_be_retried_after_a_failure():
    results = [PlaygroundError("no network"), Lab()]

    def load():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    loader = Loader("toy", load)
    with pytest.raises(PlaygroundError, match="no network"):
        loader.lab()
    assert loader.done
    loader.start()
    assert loader.lab().model.name == "toy"


# Throttling


class FakeQueue:
    """A queue that gets a number every hundredth of a second, on a clock of its own."""

    def __init__(self, count):
        self.now, self._count, self._given = 0.0, count, 0

    def empty(self):
        return self._given > self._count or self._given > self.now * 100 + 1e-6

    def get(self):
        self.now = max(self.now, self._given / 100)
        self._given += 1
        return End() if self._given > self._count else self._given - 1

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_the_first_batch_is_immediate_and_later_ones_keep_the_interval(monkeypatch):
    items = FakeQueue(100)
    monkeypatch.setattr(throttle, "time", items)
    arrived = [(items.now, batch) for batch in batches(items, 0.3)]
    assert [number for _, batch in arrived for number in batch] == list(range(100))
    assert [moment for moment, _ in arrived] == pytest.approx([0, 0.3, 0.6, 0.9, 1.2])


def test_an_error_is_raised_after_the_items_before_it():
    def source():
        yield 1
        raise PlaygroundError("no")

    items, got = queue.SimpleQueue(), []
    read_ahead(source(), items)
    with pytest.raises(PlaygroundError, match="no"):
        for batch in batches(items, 0):
            got += batch
    assert got == [1]


# The live feed


def lines_of(feed, start=0):
    """The lines of a feed, once its runs are over."""

    async def read():
        return [json.loads(line) async for lines in feed.read(start, 10) for line in lines]

    return run_async(read())


def test_a_feed_is_read_from_any_line_until_its_runs_are_over():
    feed = Feed()
    feed.set_status("one")
    feed.set_state("over")
    one, over = {"status": "one", "error": False}, {"state": "over"}
    assert lines_of(feed) == [one, over]
    assert lines_of(feed, 1) == [over]
    assert lines_of(feed, 2) == lines_of(feed, 99) == []


def test_a_reader_waits_for_lines_and_hears_from_a_silent_feed():
    async def read():
        feed = Feed()
        feed.set_status("one")
        reader = feed.read(0, 0.05)
        assert len(await anext(reader)) == 1
        assert await anext(reader) == []  # nothing arrived in time
        thread = threading.Thread(target=feed.set_status, args=("two",))
        thread.start()
        arrived = []
        while not arrived:
            arrived = await anext(reader)
        assert json.loads(arrived[0])["status"] == "two"
        await reader.aclose()
        assert not feed._readers

    run_async(read())


def test_a_distribution_is_sent_once():
    feed = Feed()
    feed.add_column(0, {})
    first = step(0, None, " a")
    feed.add_updates([Update(0, (first, step(1, None, " b", event="pruned")), 0)])
    feed.add_updates([Update(0, (first,), 0)])
    feed.set_state("over")
    _, sent, again, _ = lines_of(feed)
    assert [item["id"] for item in sent["steps"]] == [0, 1]
    assert (len(sent["distributions"]), len(again["distributions"])) == (2, 0)
    assert again["steps"][0]["at"] == 0


def test_some_of_the_cut_candidates_are_always_sent():
    def sent(kept, cut):
        feed = Feed()
        feed.add_column(0, {})
        candidates = [Candidate(Token(i, "k"), 0.01, (), 0.02) for i in range(kept)]
        candidates += [Candidate(Token(100 + i, "c"), 0.01, (), 0.0) for i in range(cut)]
        distribution = Distribution(tuple(candidates), ("top_p",), 1.0, 1.0, kept)
        feed.add_updates([Update(0, (replace(step(0, None, " a"), distribution=distribution),), 0)])
        feed.set_state("over")
        _, update, _ = lines_of(feed)
        ids = [row[0] for row in update["distributions"][0]["candidates"]]
        return len([i for i in ids if i < 100]), len([i for i in ids if i >= 100])

    assert sent(3, 20) == (3, 9)
    assert sent(20, 20) == (12, 6)
    assert sent(10, 0) == (10, 0)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (Stop("length", "48 new tokens"), "length limit: 48 new tokens"),
        (Stop("cancelled"), "stopped"),
        (Stop("no_improvement", "nothing better"), "no improvement: nothing better"),
        (Stop("MyCriterion"), "MyCriterion"),
    ],
)
def test_each_stopping_rule_has_a_text(stop, text):
    assert stop_text(stop) == text


# Runs


def requests(prompt):
    return [RunRequest(prompt, ("greedy", {}), {}, ("greedy", ""))] * 3


def new_runs(queue=None, boards=8, columns=8, **options):
    queue = queue or RunQueue(8, 8)
    monitoring = Monitoring(Labs(["toy"], load=None), queue)
    return Runs(Limits(boards=boards, columns=columns), queue, monitoring, **options)


def started(prompt, runs=None, lab=None, visitor="me"):
    """Runs after a comparison of a visitor was started, and that comparison."""
    runs = runs or new_runs()
    value = json.loads(runs.compare(lab or Lab(), visitor, lambda: requests(prompt)))
    comparison = runs.comparison(visitor)
    assert value["feed"] == comparison.feed.id
    return runs, comparison


def finished(prompt="toys", **options):
    """The same after its end."""
    runs, comparison = started(prompt, new_runs(**options))
    lines_of(comparison.feed)
    return runs, comparison


def statuses(comparison):
    return [line["status"] for line in lines_of(comparison.feed) if "status" in line]


class Reader:
    """A page that reads the runs of a feed, in a thread of its own."""

    def __init__(self, runs, feed):
        self._closed = threading.Event()
        opened = threading.Event()

        def read():
            with runs.reading(feed):
                opened.set()
                self._closed.wait(20)

        self._thread = threading.Thread(target=read)
        self._thread.start()
        opened.wait(20)

    def close(self):
        self._closed.set()
        self._thread.join()


def test_runs_are_stopped_a_while_after_their_page_lost_the_connection():
    runs, comparison = started("forever", new_runs(lost_wait=0.3))
    first = Reader(runs, comparison.feed.id)
    second = Reader(runs, comparison.feed.id)
    first.close()
    time.sleep(0.5)
    assert runs.is_running("me"), "another page still reads them"
    second.close()
    assert runs.is_running("me")
    assert statuses(comparison)[-1] == (
        "Stopped because the page was closed. The text so far is kept."
    )
    assert {trace.stop.rule for trace in comparison.traces} == {"cancelled"}
    assert not runs.is_running("me")


def test_runs_that_no_page_ever_reads_are_stopped():
    _, comparison = started("forever", new_runs(lost_wait=0.2))
    assert "the page was closed" in statuses(comparison)[-1]


def test_a_hidden_page_keeps_its_runs_and_one_that_is_left_does_not():
    runs, comparison = started("forever", new_runs(lost_wait=0.2, left_wait=0.2))
    page = Reader(runs, comparison.feed.id)
    runs.command(comparison.feed.id, "hide")
    page.close()
    time.sleep(0.5)
    assert runs.is_running("me")
    runs.command(comparison.feed.id, "leave")
    assert "the page was closed" in statuses(comparison)[-1]


def test_a_reloaded_page_continues_its_runs():
    runs, comparison = started("forever", new_runs(left_wait=0.3))
    old = Reader(runs, comparison.feed.id)
    runs.command(comparison.feed.id, "leave")
    old.close()
    assert json.loads(runs.resume("reloaded", comparison.feed.id))["feed"] == comparison.feed.id
    page = Reader(runs, comparison.feed.id)
    time.sleep(0.5)
    assert runs.is_running("reloaded")
    runs.command(comparison.feed.id, "stop")
    assert statuses(comparison)[-1] == "Stopped. The text so far is kept."
    assert not runs.is_running("reloaded") and not runs.is_running("me")
    page.close()


def test_a_reloaded_page_gets_its_comparison_back():
    runs, comparison = finished()
    assert [trace.strategy for trace in comparison.traces] == ["greedy", "beam_search", "sample"]
    assert runs.resume("other", "no such feed") is None
    assert runs.resume("other", comparison.feed.id) is not None
    assert runs.comparison("other") is comparison


def test_the_oldest_comparisons_are_dropped():
    runs = new_runs(boards=2)
    feeds = []
    for visitor in "abc":
        _, comparison = started("toys", runs, visitor=visitor)
        lines_of(comparison.feed)
        feeds.append(comparison.feed.id)
    assert runs.comparison("a") is None
    assert [runs.resume("d", feed) is not None for feed in feeds] == [False, True, True]
    with runs.reading(feeds[0]) as feed:
        assert feed is None


def test_a_failed_start_keeps_the_previous_comparison(capsys):
    runs, before = finished()
    answer = json.loads(runs.compare(Lab(), "me", lambda: requests("broken")))
    assert answer["error"].startswith("Internal error")
    assert "RuntimeError: a bug" in capsys.readouterr().err
    assert runs.comparison("me") is before and not runs.is_running("me")


def test_a_visitor_has_one_comparison_at_a_time():
    runs, mine = started("forever")
    assert runs.compare(Lab(), "me", lambda: requests("forever")) is None
    assert runs.is_running("me")
    _, yours = started("forever", runs, visitor="you")
    runs.command(mine.feed.id, "stop")
    wait(lambda: not runs.is_running("me"))
    assert runs.is_running("you")
    runs.command(yours.feed.id, "stop")
    lines_of(yours.feed)


def test_comparisons_of_other_visitors_may_have_to_end_first():
    runs, mine = started("forever", new_runs(RunQueue(1, 1)))
    wait(lambda: len(mine.feed._lines) > 6)
    _, yours = started("toys", runs, visitor="you")
    wait(lambda: any("Waiting for another" in line for line in yours.feed._lines))
    _, third = started("toys", runs, visitor="them")
    assert statuses(third)[-1].startswith("the server is busy")
    runs.command(mine.feed.id, "stop")
    *_, before, last = statuses(yours)
    assert before == "Generating …" and last.startswith("Done in")


def test_a_paused_run_says_so_before_the_next_token():
    runs, comparison = started("forever")
    for command in ("pause", "play", "dance", "stop"):  # a forged command is ignored
        runs.command(comparison.feed.id, command)
    changes = [line for line in lines_of(comparison.feed) if "state" in line or "status" in line]
    states = [line["state"] for line in changes if "state" in line]
    assert states == ["playing", "paused", "playing", "over"]
    assert statuses(comparison)[:3] == ["Generating …", "Paused.", "Generating …"]


def test_a_paused_run_is_stopped_after_a_while():
    runs = new_runs(patience=0.3)
    request = RunRequest("hi", ("greedy", {}), {"max_new_tokens": 9}, ("greedy", ""))
    runs.compare(Playground(tiny("llama")), "me", lambda: [request], stepping=True)
    comparison = runs.comparison("me")
    assert statuses(comparison)[-1].startswith("Stopped after a pause of")
    [trace] = comparison.traces
    assert trace.stop.rule == "cancelled" and len(trace.steps) == 1
    assert not runs.is_running("me")


# Forks


def test_a_fork_is_a_new_column_of_the_same_comparison():
    runs, comparison = finished()
    wanted = {"column": 1, "lead": 3, "at": 1, "token": 9}
    answer = json.loads(runs.fork(lambda name: Lab(), "me", partial(at_token, wanted)))
    assert answer["feed"] == comparison.feed.id
    wait(lambda: len(comparison.traces) == 4)
    [head] = [line for line in lines_of(comparison.feed) if line.get("column") == 3]
    assert head["origin"] == 1
    assert head["before"] == [
        {"column": 1, "step": 1},
        {"tokenId": 9, "token": " #9", "text": " #9"},
    ]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"column": 9, "at": 0, "token": 1}, "there is no column 9"),
        ({"column": "0", "at": 0, "token": 1}, "there is no column '0'"),
        ({"column": 0, "at": -1, "token": 1}, "at is -1"),
        ({"column": 0, "at": 0, "token": "x"}, "token is 'x'"),
        ({"column": 0, "at": 0, "text": 3}, "text is 3; it must be a string"),
        ({"column": 0, "at": 0, "lead": 99, "token": 1}, "this column has no step 99"),
    ],
)
def test_an_invalid_fork_is_rejected_with_a_message(wanted, text):
    runs, comparison = finished()
    answer = json.loads(runs.fork(lambda name: Lab(), "me", partial(at_token, wanted)))
    assert text in answer["error"]
    assert len(comparison.columns) == 3


def test_an_edited_text_keeps_the_tokens_in_common():
    _, comparison = finished()
    whole = f" a\n{EVIL}"
    for text, kept in ((whole, 3), (" a\nother", 2), (" an", 1), ("", 0)):
        _, tokens = at_edit({"column": 0, "lead": 2, "text": text}, comparison, Lab())
        own = [token for token in tokens if token.column is not None]
        assert len(own) == kept
        assert len(tokens) == kept + (text not in (whole, ""))


def test_the_number_of_columns_is_limited():
    runs, _ = finished(columns=3)
    wanted = {"column": 0, "at": 0, "token": 1}
    answer = json.loads(runs.fork(lambda name: Lab(), "me", partial(at_token, wanted)))
    assert "at most 3 columns" in answer["error"]


# The routes


@pytest.fixture
def client():
    """Runs, and a client of the routes to them."""
    runs = new_runs()
    return runs, TestClient(Starlette(routes=routes(runs)))


def test_the_stream_sends_numbered_lines_and_continues_after_the_last_one_read(client):
    runs, http = client
    _, comparison = started("toys", runs)
    feed = comparison.feed
    written = lines_of(feed)
    whole = http.get(f"/runs/{feed.id}/lines").text
    assert whole.startswith("retry: 1000\n\n") and whole.endswith("event: end\ndata: over\n\n")
    data = [json.loads(line[6:]) for line in whole.splitlines() if line.startswith("data: {")]
    assert data == written
    assert f"id: {len(written)}\n" in whole
    for rest in (
        http.get(f"/runs/{feed.id}/lines?from={len(written) - 1}"),
        http.get(f"/runs/{feed.id}/lines", headers={"Last-Event-ID": str(len(written) - 1)}),
    ):
        assert rest.text.count("data: {") == 1
        assert rest.headers["cache-control"] == "no-store"


def test_the_stream_of_an_unknown_feed_ends(client):
    _, http = client
    assert http.get("/runs/none/lines").text.endswith("event: end\ndata: gone\n\n")
    assert http.get("/runs/none/lines?from=-1").status_code == 400
    assert http.post("/runs/none/stop").status_code == 204


def test_commands_control_the_runs(client):
    runs, http = client
    _, comparison = started("forever", runs)
    assert http.get(f"/runs/{comparison.feed.id}/stop").status_code == 405
    assert http.post(f"/runs/{comparison.feed.id}/stop").status_code == 204
    assert statuses(comparison)[-1] == "Stopped. The text so far is kept."
