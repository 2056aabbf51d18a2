"""Runs, feeds and forks without a browser, on scripted labs."""

import asyncio
import json
import queue
from dataclasses import replace
from functools import partial

import pytest

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Candidate, Distribution, Stop, Token, Update
from playground import Playground
from playground.ui.compare import runs as runs_module
from playground.ui.compare.forks import at_edit, at_token
from playground.ui.compare.runs import Runs
from playground.ui.shared import throttle
from playground.ui.shared.comparison import RunRequest
from playground.ui.shared.live_feed import Feed, stop_text
from playground.ui.shared.model_loading import Loader
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


def lines(value):
    head, *rest = map(json.loads, value.split("\n"))
    return head, rest


def test_a_feed_sends_new_lines_or_all_lines():
    feed = Feed()
    feed.set_status("one")
    first, _ = lines(feed.take())
    feed.set_status("two")
    assert lines(feed.take()) == (
        {"feed": first["feed"], "from": 1},
        [{"say": "two", "error": False}],
    )
    head, all_lines = lines(feed.take(whole=True))
    assert head["from"] == 0
    assert [line["say"] for line in all_lines] == ["one", "two"]


def test_a_request_for_lines_waits_until_there_are_some():
    async def request():
        feed = Feed()
        feed.set_status("one")
        assert [line["say"] for line in lines(await feed.since(0, 10))[1]] == ["one"]
        waiting = asyncio.create_task(feed.since(1, 10))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        feed.set_status("two")
        head, [line] = lines(await waiting)
        assert (head["from"], line["say"]) == (1, "two")
        assert lines(await feed.since(2, 0.02))[1] == []
        feed.set_status("three")
        head, _ = lines(feed.take())
        assert head["from"] == 2, "requested lines are not sent again"

    run_async(request())


def test_a_distribution_is_sent_once():
    feed = Feed()
    feed.add_column(0, {})
    first = step(0, None, " a")
    feed.add_updates([Update(0, (first, step(1, None, " b", event="pruned")), 0)])
    feed.add_updates([Update(0, (first,), 0)])
    _, (_, sent, again) = lines(feed.take())
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
        _, (_, update) = lines(feed.take())
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


def start(lab, prompt, visitor="me"):
    runs = Runs(Limits())
    return runs, runs.compare(lab, visitor, lambda: requests(prompt))


def finished(prompt="toys", **limits):
    """Runs after a comparison of the visitor "me" has ended."""
    runs = Runs(Limits(**limits))
    *_, last = runs.compare(Lab(), "me", lambda: requests(prompt))
    return runs, last


def test_closing_a_comparison_stops_the_lab():
    stops = []

    class Watched(Lab):
        def stream(self, prompt, runs, *, stop, **shared):
            stops.append(stop)
            return super().stream(prompt, runs, stop=stop, **shared)

    runs, values = start(Watched(), "forever")
    next(values), next(values)
    assert runs.is_running("me") and not stops[0].stopped
    values.close()
    assert stops[0].stopped and not runs.is_running("me")
    comparison = runs.comparison("me")
    wait(lambda: len(comparison.traces) == 3)
    assert {trace.stop.rule for trace in comparison.traces} == {"cancelled"}
    sent = lines(runs.resume("me", comparison.feed.id))[1]
    [status] = [line["say"] for line in sent if "say" in line][-1:]
    assert status == "Stopped because the page was closed. The text so far is kept."


def test_a_reloaded_page_gets_its_comparison_back():
    runs, last = finished()
    comparison = runs.comparison("me")
    assert [trace.strategy for trace in comparison.traces] == ["greedy", "beam_search", "sample"]
    runs.leave("me")
    assert runs.comparison("me") is None
    assert runs.resume("other", "no such feed") is None
    head, sent = lines(runs.resume("other", comparison.feed.id))
    assert head["from"] == 0
    assert sent[-2:] == lines(last)[1][-2:]
    assert runs.comparison("other") is comparison


def test_a_page_can_request_lines_it_missed():
    runs, values = start(Lab(), "toys")
    written = [line for value in values for line in lines(value)[1]]
    feed = runs.comparison("me").feed.id

    def answer(request):
        return run_async(runs.lines(request))

    assert lines(answer({"feed": feed, "from": 5})) == ({"feed": feed, "from": 5}, written[5:])
    invalid = ({"feed": "none", "from": 0}, {"feed": feed, "from": -1}, {"feed": feed}, [feed])
    for request in invalid:
        assert answer(request) == ""


def test_values_are_sent_rarely_while_running_and_at_once_while_paused(monkeypatch):
    class Pausing(Lab):
        def stream(self, *args, **kwargs):
            for update in super().stream(*args, **kwargs):
                if update.lead == 99:
                    runs.control("me", "pause")
                yield update

    monkeypatch.setattr(runs_module, "VALUE_INTERVAL", 60.0)
    runs, values = start(Pausing(), "many")
    updates = [[line for line in lines(value)[1] if "steps" in line] for value in values]
    _, first, until_paused, *then = [sum(len(line["steps"]) for line in each) for each in updates]
    assert 1 <= first < until_paused and first + until_paused > 80 and then


def test_the_oldest_comparisons_are_dropped():
    runs = Runs(Limits(boards=2))
    feeds = []
    for visitor in "abc":
        for _ in runs.compare(Lab(), visitor, lambda: requests("toys")):
            pass
        feeds.append(runs.comparison(visitor).feed.id)
    assert [runs.resume("d", feed) is not None for feed in feeds] == [False, True, True]


def test_a_failed_start_keeps_the_previous_comparison():
    runs, _ = finished()
    before = runs.comparison("me")
    for _ in runs.compare(Lab(), "me", lambda: requests("broken")):
        pass
    assert runs.comparison("me") is before


def test_a_visitor_has_one_comparison_at_a_time():
    runs, first = start(Lab(), "forever")
    next(first), next(first)
    assert list(runs.compare(Lab(), "me", lambda: requests("forever"))) == []
    assert runs.is_running("me")
    other = runs.compare(Lab(), "you", lambda: requests("forever"))
    assert next(other)
    first.close()
    assert runs.is_running("you") and not runs.is_running("me")
    other.close()


def test_pausing_is_sent_before_the_next_token():
    runs, values = start(Lab(), "forever")
    next(values), next(values)
    runs.control("me", "pause")
    sent = []
    while "paused" not in sent:
        sent += [line["pace"] for line in lines(next(values))[1] if "pace" in line]
    runs.control("me", "dance")  # a forged action is ignored
    runs.stop("me")
    *_, last = values
    assert '{"pace":"over"}' in last


def test_a_paused_run_is_stopped_after_a_while():
    runs = Runs(Limits(), patience=0.3)
    request = RunRequest("hi", ("greedy", {}), {"max_new_tokens": 9}, ("greedy", ""))
    *_, last = runs.compare(Playground(tiny("llama")), "me", lambda: [request], stepping=True)
    assert "Stopped after a pause of" in last
    [trace] = runs.comparison("me").traces
    assert trace.stop.rule == "cancelled" and len(trace.steps) == 1
    assert not runs.is_running("me")


# Forks


def test_a_fork_is_a_new_column_of_the_same_comparison():
    runs, _ = finished()
    wanted = {"column": 1, "lead": 3, "at": 1, "token": 9}
    values = list(runs.fork(lambda name: Lab(), "me", partial(at_token, wanted)))
    sent = [line for value in values for line in lines(value)[1]]
    [head] = [line for line in sent if line.get("column") == 3]
    assert head["origin"] == 1
    assert head["before"] == [
        {"column": 1, "step": 1},
        {"tokenId": 9, "token": " #9", "text": " #9"},
    ]
    assert len(runs.comparison("me").traces) == 4


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # Gradio shows no message without a page
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
    runs, _ = finished()
    *_, last = runs.fork(lambda name: Lab(), "me", partial(at_token, wanted))
    errors = [line for line in lines(last)[1] if line.get("error")]
    assert text in errors[-1]["say"]
    assert len(runs.comparison("me").columns) == 3


def test_an_edited_text_keeps_the_tokens_in_common():
    runs, _ = finished()
    comparison = runs.comparison("me")
    whole = f" a\n{EVIL}"
    for text, kept in ((whole, 3), (" a\nother", 2), (" an", 1), ("", 0)):
        _, tokens = at_edit({"column": 0, "lead": 2, "text": text}, comparison, Lab())
        own = [token for token in tokens if token.column is not None]
        assert len(own) == kept
        assert len(tokens) == kept + (text not in (whole, ""))


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_the_number_of_columns_is_limited():
    runs, _ = finished(columns=3)
    wanted = {"column": 0, "at": 0, "token": 1}
    *_, last = runs.fork(lambda name: Lab(), "me", partial(at_token, wanted))
    assert "at most 3 columns" in last
