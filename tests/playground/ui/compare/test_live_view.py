"""The live view on scripted runs: hostile text, revisions, failures, visitors who leave."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Candidate, Distribution, Stop, Token, Update
from playground.ui.compare import runs as handlers
from playground.ui.compare.forks import at_edit, at_token
from playground.ui.compare.link_state import State, encode
from playground.ui.compare.live_feed import Feed, stop_words
from playground.ui.compare.results import Asked
from playground.ui.compare.runs import Runs, batches
from playground.ui.shared import throttle as gathering
from playground.ui.shared.model_loading import Loader
from playground.ui.shared.throttle import End
from tests.playground.ui.browsing import (
    column,
    opened,
    over,
    running,
    served,
    states,
    text_of,
    visiting,
    wait,
)
from tests.playground.ui.toy_page import EVIL, Lab, step

TOY = Path(__file__).parents[1] / "toy_page.py"
WRITTEN = "#live .column[data-state=writing] .token"  # those of a run before are not


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address, the gate that lets the model load, and the log."""
    folder = tmp_path_factory.mktemp("toy")
    gate, log = folder / "gate", folder / "log"
    with served([TOY, "{port}", gate, folder / "turns"], log) as address:
        yield address, gate, log


@pytest.fixture
def turns(server):
    """The turns a script may take, a character each: without it none waits for another."""
    turns = server[1].with_name("turns")
    turns.touch()
    yield turns
    turns.unlink()


@pytest.fixture(scope="module")
def page(server, browser):
    """A page that follows one script after the other, each as if it were the first."""
    address, gate, _ = server
    gate.touch()
    with opened(browser, address, lasting=True) as page:
        page.wait_for_selector(".card")
        yield page


@contextmanager
def following(page, script):
    page.fill("#prompt textarea", script)
    with running(page):
        yield


def test_the_page_is_there_before_the_model_and_says_what_it_waits_for(server, browser):
    address, gate, _ = server
    with opened(browser, address) as page:
        page.wait_for_function("document.querySelector('#loading')?.innerText.endsWith(' s')")
        assert page.inner_text("#loading").startswith("Loading toy")
        page.wait_for_selector("#run[disabled]")
        assert page.locator(".card").count() == 0
        gate.touch()
        page.wait_for_selector(".card")
        page.wait_for_selector("#run:not([disabled])")
        assert page.input_value("#model input") == "toy"
        assert not page.locator("#loading").is_visible()


def test_what_the_benchmark_serves_is_the_page_too(browser, tmp_path):
    with (
        served(["benchmarks/scripted.py", "{port}"], tmp_path / "log") as address,
        opened(browser, address) as page,
    ):
        page.wait_for_selector("#run:not([disabled])")


def test_run_runs_as_soon_as_it_can_be_pressed_however_long_the_cards_take(server, browser):
    address, gate, _ = server
    gate.write_text("0.3")
    try:
        for _ in range(2):
            with opened(browser, address) as page, following(page, "drafts"):
                pass
    finally:
        gate.write_text("")


@pytest.mark.parametrize("seconds", ["0", "0.1", "0.4"])
def test_a_press_before_the_cards_of_a_link_are_drawn_is_kept_until_they_are(
    server, browser, seconds
):
    address, gate, _ = server
    link = "#s=" + encode(State("toy", "drafts", cards=(("greedy", {}),) * 2))
    gate.write_text(seconds)
    try:
        for _ in range(2):
            with opened(browser, address, link) as page:
                wait(lambda: page.input_value("#prompt textarea") == "drafts")
                with over(page):
                    page.evaluate(
                        "() => { const run = document.querySelector('#run button, button#run');"
                        " run.disabled = false; run.click(); }"
                    )
    finally:
        gate.write_text("")


# Has a page hear all that the server tells it a tenth of a second late, and nothing else.
LATE = """document.addEventListener('readystatechange', () => {
    if (document.readyState !== 'interactive') return; // the head's scripts have run, no other has
    const before = globalThis.fetch;
    globalThis.fetch = async (what, how) => {
        const answer = await before(what, how);
        if (!String(what.url ?? what).includes('queue/data')) return answer;
        const late = new TransformStream({
            async transform(piece, next) {
                await new Promise((go) => setTimeout(go, 100));
                next.enqueue(piece);
            },
        });
        return new Response(answer.body.pipeThrough(late), answer);
    };
});"""


def test_every_answer_is_heard_however_late_they_come(server, browser):
    address, gate, _ = server
    gate.touch()
    link = "#s=" + encode(State("toy", "drafts", cards=(("greedy", {}),) * 2))
    for _ in range(2):
        with visiting(browser) as page:
            page.add_init_script(LATE)
            page.goto(address + link)
            wait(lambda: page.input_value("#prompt textarea") == "drafts")
            with running(page):
                pass


def test_text_of_the_model_is_never_markup(page):
    with following(page, "toys"):
        pass
    assert text_of(page, 0) == f" a\n{EVIL}"
    assert EVIL in column(page, 0).locator(".figures").inner_text()
    column(page, 0).locator(".token").nth(2).hover()
    rows = page.locator("#live .candidates tr")
    wait(lambda: any(row.startswith("<img␣src=x") for row in rows.all_inner_texts()))
    assert page.evaluate("window.evil") is None
    assert page.locator("#live img, #live script").count() == 0


def test_an_error_in_one_run_shows_in_its_column_while_the_others_go_on(page, turns):
    turns.write_text("..")
    with following(page, "toys"):
        page.wait_for_selector("#live:has([data-state=failed]):has([data-state=writing])")
        turns.write_text("...")
    assert states(page) == ["done", "done", "failed"]
    assert page.inner_text("#live .failure") == f"no more memory {EVIL}"
    assert text_of(page, 2) == " half"
    assert page.inner_text("#live .status") == "Done in 0.4 s; 1 of 3 failed."


def test_beams_revise_their_text_and_every_returned_one_can_be_read(page, turns):
    with following(page, "toys"):
        for text, granted in ((" one", "."), (" one more", ".."), (" two end", "...")):
            wait(lambda text=text: text_of(page, 1) == text)
            turns.write_text(granted)
    choices = column(page, 1).locator(".sequences button")
    assert choices.all_inner_texts() == ["1. -0.1000", "2. -0.2500"]
    choices.nth(1).click()
    wait(lambda: text_of(page, 1) == " one more")
    assert column(page, 1).locator('[aria-pressed="true"]').inner_text() == "2. -0.2500"


def figures(page, index):
    """What a column says below its text."""
    words = column(page, index).locator(".figures")
    names, values = (words.locator(part).all_inner_texts() for part in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_a_token_nobody_saw_being_chosen_is_told_apart_by_its_shape(page):
    assert not page.locator("#live .missed").is_visible()
    with following(page, "drafts"):
        pass
    [missed] = column(page, 0).locator(".unseen").all()
    assert missed.inner_text() == " taken"
    assert missed.get_attribute("aria-label") == "taken, not captured"
    style = missed.evaluate("t => [getComputedStyle(t).outlineStyle, t.style.background]")
    assert style == ["dotted", ""]
    assert page.locator("#live .missed").is_visible()  # the legend
    missed.hover()
    page.wait_for_selector("#live .candidates >> text=Not captured")


def test_a_run_that_writes_ahead_says_what_became_of_its_drafts(page):
    with following(page, "drafts"):
        pass
    told = figures(page, 1)
    assert (told["forward passes"], told["draft passes"]) == ("1", "3")
    assert told["accepted"] == "1 of 3 drafted"
    for column_without in (0, 2):
        assert not {"draft passes", "accepted"} & figures(page, column_without).keys()


def test_nothing_is_lost_when_news_comes_faster_than_frames(page):
    with following(page, "many"):
        page.wait_for_selector(WRITTEN)
        # A browser that is busy for a while misses screens.
        page.evaluate("() => { const end = Date.now() + 1500; while (Date.now() < end); }")
    assert text_of(page, 0) == "".join(f"{id} " for id in range(300))


def test_the_page_can_be_used_again_after_the_program_failed(page):
    with following(page, "broken"):
        pass
    assert page.inner_text("#live .status") == "The program failed; the server's log says where."
    with following(page, "toys"):
        pass
    assert states(page) == ["done", "done", "failed"]


@pytest.mark.parametrize("leaving", ["close", "reload"])
def test_a_visitor_who_leaves_stops_the_run(server, browser, leaving):
    address, gate, log = server
    gate.touch()
    before = log.read_text().count("stopped")
    with visiting(browser) as page:
        page.goto(address)
        page.wait_for_selector(".card")
        page.fill("#prompt textarea", "forever")
        page.click("#run")
        page.wait_for_selector("#live .token")
        getattr(page, leaving)()
        wait(lambda: log.read_text().count("stopped") == before + 1)


def test_visitors_stop_their_own_runs_only(server, browser):
    address, gate, _ = server
    gate.touch()
    with opened(browser, address) as one, opened(browser, address) as two:
        for page in (one, two):
            page.wait_for_selector(".card")
        with following(two, "forever"):
            with following(one, "forever"):
                one.wait_for_selector("#live .token")
                two.wait_for_selector("#live .token")
                one.click("#stop")
            before = two.locator("#live .token").count()
            two.wait_for_function(f"document.querySelectorAll('#live .token').length > {before}")
            two.click("#stop")
        assert states(one) == states(two) == ["stopped"] * 3


def test_cards_may_come_and_go_while_a_run_goes_on(page):
    with following(page, "forever"):
        page.wait_for_selector(WRITTEN)
        page.click("#add")
        page.wait_for_selector(".card >> nth=3")
        before = page.locator("#live .token").count()
        page.wait_for_function(f"document.querySelectorAll('#live .token').length > {before}")
        page.click("#stop")
    page.wait_for_selector("#stop[disabled]")
    page.locator(".card .remove").last.click()
    page.wait_for_selector(".card >> nth=3", state="detached")


# Without a browser


def test_a_model_that_could_not_be_loaded_is_tried_again():
    answers = [PlaygroundError("no network"), Lab()]

    def load():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    loader = Loader("toy", load)
    with pytest.raises(PlaygroundError, match="no network"):
        loader.lab()
    assert loader.done and not loader.loaded
    loader.start()
    assert loader.lab().model.name == "toy"
    assert loader.loaded


class Arriving:
    """A queue into which a number comes every hundredth of a second, on a clock of its own."""

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


def test_batches_come_at_once_and_then_no_faster_than_asked(monkeypatch):
    arriving = Arriving(100)
    monkeypatch.setattr(gathering, "time", arriving)
    arrived = [(arriving.now, batch) for batch in gathering.gathered(arriving, 0.3)]
    assert [number for _, batch in arrived for number in batch] == list(range(100))
    assert [moment for moment, _ in arrived] == pytest.approx([0, 0.3, 0.6, 0.9, 1.2])


def test_batches_pass_an_error_on_after_what_came_before_it():
    def source():
        yield 1
        raise PlaygroundError("no")

    got = []
    with pytest.raises(PlaygroundError, match="no"):
        for batch in batches(source(), 0):
            got += batch
    assert got == [1]


def lines(screen):
    head, *rest = map(json.loads, screen.split("\n"))
    return head, rest


def test_a_feed_sends_what_is_new_or_everything():
    feed = Feed()
    feed.say("one")
    first, _ = lines(feed.take())
    feed.say("two")
    assert lines(feed.take()) == (
        {"feed": first["feed"], "from": 1},
        [{"say": "two", "error": False}],
    )
    head, news = lines(feed.take(whole=True))
    assert head["from"] == 0
    assert [line["say"] for line in news] == ["one", "two"]


def answered(asked):
    """What a coroutine gives; the browser's own loop has this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()


def test_a_feed_tells_who_asks_what_came_since_and_waits_for_it():
    async def asked():
        feed = Feed()
        feed.say("one")
        assert [line["say"] for line in lines(await feed.since(0, 10))[1]] == ["one"]
        waiting = asyncio.create_task(feed.since(1, 10))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        feed.say("two")
        head, [line] = lines(await waiting)
        assert (head["from"], line["say"]) == (1, "two")
        assert lines(await feed.since(2, 0.02))[1] == []
        feed.say("three")
        head, _ = lines(feed.take())
        assert head["from"] == 2, "what somebody asked for is not sent again"

    answered(asked())


def test_a_feed_tells_a_distribution_once():
    feed = Feed()
    feed.column(0, {})
    first = step(0, None, " a")
    feed.add([Update(0, (first, step(1, None, " b", event="pruned")), 0)])
    feed.add([Update(0, (first,), 0)])
    _, (_, told, again) = lines(feed.take())
    assert [item["id"] for item in told["steps"]] == [0, 1]
    assert (len(told["distributions"]), len(again["distributions"])) == (2, 0)
    assert again["steps"][0]["at"] == 0


def test_the_best_of_the_cut_candidates_are_always_listed():
    def listed(kept, cut):
        feed = Feed()
        feed.column(0, {})
        candidates = [Candidate(Token(i, "k"), 0.01, (), 0.02) for i in range(kept)]
        candidates += [Candidate(Token(100 + i, "c"), 0.01, (), 0.0) for i in range(cut)]
        distribution = Distribution(tuple(candidates), ("top_p",), 1.0, 1.0, kept)
        given = replace(step(0, None, " a"), distribution=distribution)
        feed.add([Update(0, (given,), 0)])
        _, (_, told) = lines(feed.take())
        ids = [row[0] for row in told["distributions"][0]["candidates"]]
        return len([i for i in ids if i < 100]), len([i for i in ids if i >= 100])

    assert listed(3, 20) == (3, 9)
    assert listed(20, 20) == (12, 6)
    assert listed(10, 0) == (10, 0)


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop("length", "48 new tokens"), "length reached: 48 new tokens"),
        (Stop("cancelled"), "stopped"),
        (Stop("no_improvement", "nothing better"), "no improvement: nothing better"),
        (Stop("MyCriterion"), "MyCriterion"),
    ],
)
def test_every_stopping_rule_has_words(stop, words):
    assert stop_words(stop) == words


def wish(prompt):
    return [Asked(prompt, ("greedy", {}), {}, ("greedy", ""))] * 3


def runs_of(lab, prompt, visitor="me"):
    runs = Runs(Limits())
    return runs, runs.compare(lab, visitor, lambda: wish(prompt))


def test_closing_a_comparison_stops_the_lab():
    stops = []

    class Watched(Lab):
        def stream(self, prompt, runs, *, stop, **shared):
            stops.append(stop)
            return super().stream(prompt, runs, stop=stop, **shared)

    runs, screens = runs_of(Watched(), "forever")
    next(screens), next(screens)
    assert runs.going("me") and not stops[0].stopped
    screens.close()
    assert stops[0].stopped and not runs.going("me")
    wait(lambda: len(runs.board("me").traces) == 3)
    assert {trace.stop.rule for trace in runs.board("me").traces} == {"cancelled"}
    [said] = [
        line for line in lines(runs.resume("me", runs.board("me").feed.id))[1] if "say" in line
    ][-1:]
    assert said["say"] == "Stopped: the page was left. What was written until then stays."


def test_a_visitor_who_comes_back_with_the_boards_name_gets_it_whole():
    runs, screens = runs_of(Lab(), "toys")
    *_, last = screens
    board = runs.board("me")
    assert [trace.strategy for trace in board.traces] == ["greedy", "beam_search", "sample"]
    runs.forget("me")
    assert runs.board("me") is None
    assert runs.resume("other", "no such name") is None
    head, news = lines(runs.resume("other", board.feed.id))
    assert head["from"] == 0
    assert news[-2:] == lines(last)[1][-2:]
    assert runs.board("other") is board


def test_a_page_may_ask_for_what_it_missed_of_a_feed_it_knows():
    runs, screens = runs_of(Lab(), "toys")
    written = [line for screen in screens for line in lines(screen)[1]]
    feed = runs.board("me").feed.id

    def answer(wish):
        return answered(runs.more(wish))

    assert lines(answer({"feed": feed, "from": 5})) == ({"feed": feed, "from": 5}, written[5:])
    for wish in ({"feed": "none", "from": 0}, {"feed": feed, "from": -1}, {"feed": feed}):
        assert answer(wish) == ""


def test_news_goes_through_gradio_once_in_a_while_and_at_once_while_paused(monkeypatch):
    class Pausing(Lab):
        def stream(self, *args, **kwargs):
            for update in super().stream(*args, **kwargs):
                if update.lead == 99:
                    runs.pace("me", "pause")
                yield update

    monkeypatch.setattr(handlers, "SCREEN", 60.0)
    runs, screens = runs_of(Pausing(), "many")
    told = [[line for line in lines(screen)[1] if "steps" in line] for screen in screens]
    _, first, until_paused, *then = [sum(len(line["steps"]) for line in news) for news in told]
    assert 1 <= first < until_paused and first + until_paused > 80 and then


def test_only_so_many_boards_are_kept():
    runs = Runs(Limits(boards=2))
    names = []
    for visitor in "abc":
        for _ in runs.compare(Lab(), visitor, lambda: wish("toys")):
            pass
        names.append(runs.board(visitor).feed.id)
    assert [runs.resume("d", name) is not None for name in names] == [False, True, True]


def test_a_refused_comparison_leaves_the_last_one_where_it_is():
    runs, screens = runs_of(Lab(), "toys")
    for _ in screens:
        pass
    before = runs.board("me")
    for _ in runs.compare(Lab(), "me", lambda: wish("broken")):
        pass
    assert runs.board("me") is before


def test_a_visitor_has_one_run_at_a_time():
    runs, first = runs_of(Lab(), "forever")
    next(first), next(first)
    assert list(runs.compare(Lab(), "me", lambda: wish("forever"))) == []
    assert runs.going("me")
    other = runs.compare(Lab(), "you", lambda: wish("forever"))
    assert next(other)
    first.close()
    assert runs.going("you") and not runs.going("me")
    other.close()


def test_pausing_is_told_at_once_though_no_token_comes():
    runs, screens = runs_of(Lab(), "forever")
    next(screens), next(screens)
    runs.pace("me", "pause")
    told = []
    while "paused" not in told:
        told += [line["pace"] for line in lines(next(screens))[1] if "pace" in line]
    runs.pace("me", "dance")  # anybody may send anything
    runs.stop("me")
    *_, last = screens
    assert '{"pace":"over"}' in last


def test_a_fork_is_one_more_column_on_the_same_board():
    runs, screens = runs_of(Lab(), "toys")
    for _ in screens:
        pass
    wanted = {"column": 1, "lead": 3, "at": 1, "token": 9}
    screens = list(runs.fork(lambda name: Lab(), "me", partial(at_token, wanted)))
    news = [line for screen in screens for line in lines(screen)[1]]
    [head] = [line for line in news if line.get("column") == 3]
    assert head["origin"] == 1
    assert head["before"] == [
        {"column": 1, "step": 1},
        {"tokenId": 9, "token": " #9", "text": " #9"},
    ]
    assert len(runs.board("me").traces) == 4


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # a toast where there is no page
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"column": 9, "at": 0, "token": 1}, "there is no column 9"),
        ({"column": "0", "at": 0, "token": 1}, "there is no column '0'"),
        ({"column": 0, "at": -1, "token": 1}, "at is -1"),
        ({"column": 0, "at": 0, "token": "x"}, "token is 'x'"),
        ({"column": 0, "at": 0, "text": 3}, "a text is expected"),
        ({"column": 0, "at": 0, "lead": 99, "token": 1}, "there is no step 99"),
    ],
)
def test_a_fork_from_nowhere_is_refused_in_words(wanted, words):
    runs, screens = runs_of(Lab(), "toys")
    for _ in screens:
        pass
    *_, last = runs.fork(lambda name: Lab(), "me", partial(at_token, wanted))
    said = [line for line in lines(last)[1] if line.get("error")]
    assert words in said[-1]["say"]
    assert len(runs.board("me").columns) == 3


def test_an_edited_text_keeps_the_tokens_it_shares():
    runs, screens = runs_of(Lab(), "toys")
    for _ in screens:
        pass
    board = runs.board("me")
    whole = f" a\n{EVIL}"
    for text, kept in ((whole, 3), (" a\nother", 2), (" an", 1), ("", 0)):
        _, before = at_edit({"column": 0, "lead": 2, "text": text}, board, Lab())
        own = [item for item in before if item.column is not None]
        assert len(own) == kept
        assert len(before) == kept + (text not in (whole, ""))


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_columns_have_a_limit():
    runs = Runs(Limits(columns=3))
    for _ in runs.compare(Lab(), "me", lambda: wish("toys")):
        pass
    wanted = {"column": 0, "at": 0, "token": 1}
    *_, last = runs.fork(lambda name: Lab(), "me", partial(at_token, wanted))
    assert "at most 3 columns" in last
