"""The live view on scripted runs: hostile text, revisions, failures, visitors who leave."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engine.errors import PlaygroundError
from engine.trace import Candidate, Distribution, Stop, Token, Update
from playground.ui.handlers import Runs, Wish, batches
from playground.ui.live import Feed, stop_words
from playground.ui.loading import Loader
from tests.playground.browsing import (
    column,
    opened,
    running,
    served,
    states,
    text_of,
    wait,
)
from tests.playground.toy_page import EVIL, Lab, step

TOY = Path(__file__).with_name("toy_page.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address, the gate that lets the model load, and the log."""
    folder = tmp_path_factory.mktemp("toy")
    gate, log = folder / "gate", folder / "log"
    with served([TOY, "{port}", gate], log) as address:
        yield address, gate, log


@pytest.fixture
def page(server, browser):
    address, gate, _ = server
    gate.touch()
    with opened(browser, address) as page:
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
        page.wait_for_function("document.querySelector('#model')?.innerText.endsWith(' s')")
        assert page.inner_text("#model").startswith("Loading the model toy")
        assert page.locator("#run").is_disabled()
        assert page.locator(".card").count() == 0
        gate.touch()
        page.wait_for_selector(".card")
        page.wait_for_selector("#run:not([disabled])")
        assert page.inner_text("#model").strip() == "Model: toy"


def test_run_runs_as_soon_as_it_can_be_pressed_however_long_the_cards_take(server, browser):
    address, gate, _ = server
    gate.write_text("0.3")
    try:
        for _ in range(3):
            with opened(browser, address) as page, following(page, "toys"):
                pass
    finally:
        gate.write_text("")


def test_text_of_the_model_is_never_markup(page):
    with following(page, "toys"):
        pass
    assert text_of(page, 0) == f" a\n{EVIL}"
    assert EVIL in column(page, 0).locator(".figures").inner_text()
    column(page, 0).locator(".token").nth(2).hover()
    rows = page.locator("#live .candidates tr").all_inner_texts()
    assert any(row.startswith("<img␣src=x") for row in rows)
    assert page.evaluate("window.evil") is None
    assert page.locator("#live img, #live script").count() == 0


def test_an_error_in_one_run_shows_in_its_column_while_the_others_go_on(page):
    with following(page, "toys"):
        page.wait_for_selector('[data-state="failed"]')
        assert "writing" in states(page)
    assert states(page) == ["done", "done", "failed"]
    assert page.inner_text("#live .failure") == f"no more memory {EVIL}"
    assert text_of(page, 2) == " half"
    assert page.inner_text("#live .status") == "Done in 0.4 s; 1 of 3 failed."


def test_beams_revise_their_text_and_every_returned_one_can_be_read(page):
    with following(page, "toys"):
        for text in (" one", " one more", " two end"):
            wait(lambda text=text: text_of(page, 1) == text)
    choices = column(page, 1).locator(".sequences button")
    assert choices.all_inner_texts() == ["1. -0.1000", "2. -0.2500"]
    choices.nth(1).click()
    assert text_of(page, 1) == " one more"
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
    assert "Not captured" in page.inner_text("#live .candidates")


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
        page.wait_for_selector("#live .token")
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
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".card")
    page.fill("#prompt textarea", "forever")
    page.click("#run")
    page.wait_for_selector("#live .token")
    getattr(page, leaving)()
    wait(lambda: log.read_text().count("stopped") == before + 1)
    context.close()


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
        page.wait_for_selector("#live .token")
        page.click("#add")
        page.wait_for_selector(".card >> nth=3")
        before = page.locator("#live .token").count()
        page.wait_for_function(f"document.querySelectorAll('#live .token').length > {before}")
        page.click("#stop")
    assert page.locator("#stop").is_disabled()


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


def test_batches_come_at_once_and_then_no_faster_than_asked():
    def source():
        for number in range(100):
            yield number
            time.sleep(0.01)

    began = time.monotonic()
    arrived = [(time.monotonic() - began, batch) for batch in batches(source(), 0.3)]
    assert [number for _, batch in arrived for number in batch] == list(range(100))
    assert arrived[0][0] < 0.25
    gaps = [later - sooner for (sooner, _), (later, _) in pairwise(arrived[1:])]
    assert min(gaps) > 0.29


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


def test_a_feed_tells_a_distribution_once_and_no_step_that_never_had_a_place():
    feed = Feed()
    feed.columns([("beam search", "")])
    first = step(0, None, " a")
    feed.add([Update(0, (first, step(1, None, " b", event="pruned")), 0)])
    feed.add([Update(0, (first,), 0)])
    _, (_, told, again) = lines(feed.take())
    assert [item["id"] for item in told["steps"]] == [0]
    assert (len(told["distributions"]), len(again["distributions"])) == (1, 0)
    assert again["steps"][0]["at"] == 0


def test_the_best_of_the_cut_candidates_are_always_listed():
    def listed(kept, cut):
        feed = Feed()
        feed.columns([("sample", "")])
        candidates = [Candidate(Token(i, "k"), 0.01, (), 0.02) for i in range(kept)]
        candidates += [Candidate(Token(100 + i, "c"), 0.01, (), 0.0) for i in range(cut)]
        distribution = Distribution(tuple(candidates), ("top_p",), 1.0, 1.0, kept)
        given = replace(step(0, None, " a"), distribution=distribution)
        feed.add([Update(0, (given,), 0)])
        _, (_, told) = lines(feed.take())
        ids = [row[0] for row in told["distributions"][0]["candidates"]]
        return len([i for i in ids if i < 100]), len([i for i in ids if i >= 100])

    assert listed(3, 20) == (3, 7)
    assert listed(20, 20) == (10, 3)
    assert listed(10, 0) == (10, 0)


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop("length", "48 new tokens"), "length reached: 48 new tokens"),
        (Stop("cancelled"), "stopped by you"),
        (Stop("no_improvement", "nothing better"), "no improvement: nothing better"),
        (Stop("MyCriterion"), "MyCriterion"),
    ],
)
def test_every_stopping_rule_has_words(stop, words):
    assert stop_words(stop) == words


def wish(prompt):
    return Wish(prompt, [("greedy", {})] * 3, {}, [("greedy", "")] * 3)


def test_closing_a_comparison_stops_the_lab():
    stops = []

    class Watched(Lab):
        def stream(self, prompt, runs, *, stop, **shared):
            stops.append(stop)
            return super().stream(prompt, runs, stop=stop, **shared)

    runs = Runs()
    screens = runs.compare(Watched(), "me", lambda: wish("forever"))
    next(screens), next(screens)
    assert runs.going("me") and not stops[0].is_set()
    screens.close()
    assert stops[0].is_set() and not runs.going("me")
    assert runs.traces("me") is None


def test_traces_are_handed_out_once_and_forgotten_with_their_visitor():
    runs = Runs()
    for _ in runs.compare(Lab(), "me", lambda: wish("toys")):
        pass
    assert [trace.strategy for trace in runs.traces("me")] == ["greedy", "beam_search", "sample"]
    assert runs.traces("me") is None
    for _ in runs.compare(Lab(), "me", lambda: wish("toys")):
        pass
    runs.forget("me")
    assert runs.traces("me") is None


def test_a_visitor_has_one_run_at_a_time():
    runs = Runs()
    first = runs.compare(Lab(), "me", lambda: wish("forever"))
    next(first), next(first)
    assert list(runs.compare(Lab(), "me", lambda: wish("forever"))) == []
    assert runs.going("me")
    other = runs.compare(Lab(), "you", lambda: wish("forever"))
    assert next(other)
    first.close()
    assert runs.going("you") and not runs.going("me")
    other.close()
