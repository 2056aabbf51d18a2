"""The Speculative page: it shows what the runs did."""

import json
import re
import threading

import gradio as gr
import pytest
from axe_playwright_python.sync_playwright import Axe

from engine.settings import Limits
from engine.trace import Update
from engine.trace.rounds import rounds
from playground import Playground
from playground.speculation.accounting import accounting
from playground.speculation.drafters import PLAIN, Drafter, all_drafters
from playground.speculation.race import Lane, Race, RaceUpdate, race
from playground.ui.shared import controls, html
from playground.ui.speculative import form
from playground.ui.speculative.lanes import LaneView
from playground.ui.speculative.race import TimedRuns
from tests.conftest import step
from tests.playground.ui.browsing import (
    WIDE,
    expect_message,
    on_tab,
    opened,
    ready,
    run_async,
    shared_link,
    tab,
    wait,
)

LOOKUP = "Prompt lookup"
TOKENS = 12
EVIL = '<img src=x onerror="window.evil = 1">'
PROMPT = f"A page: {EVIL}<p>one</p>{EVIL}<p>two</p>{EVIL}<p>"
SLOW = 120_000  # milliseconds that a busy machine may take
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def page(browser, address):
    with opened(browser, address) as page:
        page.set_default_timeout(60_000)
        page.emulate_media(reduced_motion="reduce")
        ready(page)
        tab(page, "Speculative")
        yield page


@pytest.fixture(scope="module")
def traces(lab):
    """The runs that the page is compared with."""
    runs = ["greedy", ("prompt_lookup", {"prompt_lookup_num_tokens": 8})]
    return [lab.compare(PROMPT, [run], max_new_tokens=TOKENS)[0] for run in runs]


@pytest.fixture(scope="module")
def raced(page):
    """The page after a race of plain decoding and prompt lookup."""
    page.get_by_role("checkbox", name=LOOKUP).wait_for()
    for box in page.locator("#spec-drafters input").all():
        box.set_checked(box.get_attribute("name") == LOOKUP)
    page.fill("#spec-prompt textarea", PROMPT)
    fill(page, "spec-tokens", TOKENS)
    page.click("#spec-race")
    page.wait_for_selector("#spec-results table", timeout=SLOW)
    idle(page, "#spec-race")
    return page


def fill(page, id, value):
    page.fill(f"#{id} input >> nth=0", str(value))
    page.keyboard.press("Tab")


def idle(page, button):
    page.wait_for_selector(f"{button}:not([disabled])", timeout=SLOW)


def section(page, name):
    page.get_by_role("tab", name=name).click()


def rows(page, place):
    table = page.locator("#spec-results table").nth(place)
    return {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in table.locator("tbody tr").all()
    }


def tokens(page, lane, fates):
    names = ", ".join(f".tok.{fate}" for fate in fates)
    found = page.locator("#spec-lanes .lane").nth(lane).locator(".text").locator(names)
    return found.evaluate_all("all => all.map(token => token.textContent)")


def test_an_empty_page_explains_itself_and_an_empty_prompt_is_rejected(page):
    assert "Press Race" in page.inner_text("#spec-lanes .status")
    assert "After a race" in page.inner_text("#spec-results")
    page.fill("#spec-prompt textarea", " ")
    page.click("#spec-race")
    expect_message(page, "the prompt is empty")
    idle(page, "#spec-race")
    page.click("#spec-example-1")
    wait(lambda: "Summarise" in page.input_value("#spec-prompt textarea"))
    assert page.locator("#spec-kind").get_by_label("message to answer").is_checked()
    assert not page.locator("#spec-back").is_visible(), "no column was sent"
    page.click("#spec-example-0")
    page.locator("#spec-kind input[value='text to continue']:checked").wait_for()


def test_a_race_shows_the_token_counts_of_its_runs(raced, traces):
    speed, spent = rows(raced, 0), rows(raced, 1)
    assert [*speed] == [*spent] == [PLAIN, LOOKUP]
    for name, trace in zip(speed, traces, strict=True):
        counts = accounting(trace)
        passes = [counts.tokens, counts.target_passes, counts.passes_saved]
        assert speed[name][3:6] == [str(count) for count in passes]
        drafted = [counts.drafted, counts.accepted, counts.rejected, counts.ignored]
        written = [counts.tokens, counts.accepted, counts.resampled, counts.bonus, counts.plain]
        assert spent[name][:4] == [str(count) for count in drafted]
        assert spent[name][5:] == [*(str(count) for count in written), "yes"]
    assert accounting(traces[1]).rejected and accounting(traces[1]).accepted, (
        "the prompt shows both"
    )
    assert speed[LOOKUP][-1] == f"yes, all {TOKENS} tokens"
    rate = float(speed[LOOKUP][0])
    assert rate == pytest.approx(TOKENS / float(speed[LOOKUP][2].split()[0]), rel=0.05)


def test_lanes_show_what_became_of_each_token(raced, traces):
    kept = ("chosen", "accepted", "bonus", "resampled")
    for lane, trace in enumerate(traces):
        assert "".join(tokens(raced, lane, kept)) == trace.text
        counts = accounting(trace)
        assert len(tokens(raced, lane, ["accepted"])) == counts.accepted
        assert len(tokens(raced, lane, ["rejected"])) == counts.rejected
        figures = raced.locator("#spec-lanes .lane").nth(lane)
        assert figures.locator(".passes dd").inner_text() == str(counts.target_passes)
    assert raced.evaluate("window.evil") is None
    assert raced.locator("#spec-lanes img").count() == 0
    badges = raced.locator("#spec-lanes .badge").all_inner_texts()
    assert sorted(re.match(r"1st|2nd", badge)[0] for badge in badges) == ["1st", "2nd"]


def test_a_replay_shows_all_lanes_on_one_clock(raced, traces):
    clock = raced.locator("#spec-lanes .clock")
    clock.evaluate("node => { node.value = 0; node.dispatchEvent(new Event('input')); }")
    assert tokens(raced, 1, ["accepted", "rejected"]) == []
    raced.click("#spec-lanes .play")  # by a tenth at a time, with reduced motion
    end = float(clock.get_attribute("max"))
    assert float(clock.input_value()) == pytest.approx(end / 10, rel=0.01)
    for _ in range(9):
        raced.click("#spec-lanes .play")
    assert len(tokens(raced, 1, ["accepted"])) == accounting(traces[1]).accepted


def test_settings_stand_beside_the_lanes_and_results_below_both(raced):
    raced.set_viewport_size({"width": 1280, "height": 720})
    raced.evaluate("scrollTo(0, 0)")
    form, lanes, results = (box(raced, f"#spec-{id}") for id in ("form", "course", "tabs"))
    assert form["x"] + form["width"] <= lanes["x"] and 340 <= form["width"] <= 380
    assert results["y"] >= max(end(form), end(lanes)) and results["width"] > lanes["width"]
    for part in (".tools .play", ".tools .clock", ".lane >> nth=0"):
        assert end(box(raced, f"#spec-lanes {part}")) <= 720
    raced.set_viewport_size({"width": 880, "height": 720})
    assert end(box(raced, "#spec-form")) <= box(raced, "#spec-course")["y"]
    raced.set_viewport_size(WIDE)


def box(page, selector):
    return page.locator(selector).bounding_box()


def end(found):
    return found["y"] + found["height"]


def test_texts_are_compared_token_by_token(raced):
    section(raced, "Losslessness")
    assert f"All {TOKENS} tokens are the same." in raced.inner_text("#spec-lossless")
    assert raced.locator("#spec-lossless .spec-pairs .same").count() == TOKENS
    assert raced.locator("#spec-lossless .differs").count() == 0
    assert "The smallest gap between" in raced.inner_text("#spec-lossless")
    other = html.aligned(("a", "b"), (["x", EVIL], ["x", " y", "z"]), 1)
    assert other.count('class="differs"') == 1 and other.count('class="after"') == 1
    assert "<img" not in other


def test_the_rounds_have_figures(raced):
    section(raced, "Rounds")
    for name in ("timeline", "positions", "entropy", "theory"):
        raced.wait_for_selector(f"#lab-speculative_{name} .main-svg >> nth=0")
    assert not raced.is_visible("#lab-speculative_p_q"), "lookup has no q"
    words = raced.inner_text("#spec-closer-words")
    assert "best draft length" in words or "plain decoding is fastest" in words
    found = Axe().run(raced, context="#tabs", options={"runOnly": {"type": "tag", "values": RULES}})
    broken = [each["id"] for each in found.response["violations"]]
    assert broken == [], json.dumps(found.response["violations"])[:2000]


def test_the_distribution_test_and_the_grid_can_be_stopped(raced):
    section(raced, "Losslessness")
    raced.click("#spec-lossless-test")
    raced.wait_for_selector("#spec-lossless-progress progress", timeout=SLOW)
    raced.click("#spec-lossless-stop")
    raced.wait_for_selector("#spec-lossless-progress >> text=no result", timeout=SLOW)
    section(raced, "Draft length")
    raced.click("#spec-sweep-drafter input")
    raced.get_by_role("option", name=LOOKUP).click()
    fill(raced, "spec-sweep-tokens", 4)
    raced.click("#spec-sweep-measure")
    raced.wait_for_selector("#spec-sweep-progress >> text=/^[1-9]\\d* of 21 runs/", timeout=SLOW)
    raced.click("#spec-sweep-stop")
    raced.wait_for_selector("#spec-sweep-progress >> text=Fastest", timeout=SLOW)
    raced.wait_for_selector("#spec-sweep-plot .main-svg >> nth=0")


def test_a_stopped_race_keeps_its_lanes(raced):
    fill(raced, "spec-tokens", 200)
    raced.click("#spec-race")
    raced.wait_for_selector("#spec-lanes .lane[data-state=running] .tok", timeout=SLOW)
    raced.click("#spec-stop")
    idle(raced, "#spec-race")
    assert raced.inner_text("#spec-progress").startswith("Stopped")
    assert "stopped" in raced.locator("#spec-lanes .badge").all_inner_texts()
    raced.set_viewport_size({"width": 390, "height": 844})
    assert raced.evaluate("document.documentElement.scrollWidth") <= 390


# Without a browser


def test_a_lane_has_the_times_of_its_trace(lab):
    all_drafters = (Drafter("Lookup", "prompt_lookup", {"prompt_lookup_num_tokens": 8}),)
    screen, last = LaneView(all_drafters, TOKENS), None
    for news in race(lab, PROMPT, all_drafters, max_new_tokens=TOKENS):
        screen.add(news)
        last = news.lane or last
    [lane] = json.loads(screen.value())["lanes"]
    assert lane["state"] == "done" and lane["ms"] == pytest.approx(1000 * last.seconds, abs=0.1)
    kept = [token for token in lane["tokens"] if token[1] not in ("rejected", "ignored")]
    assert [token[3] for token in kept] == pytest.approx(last.arrivals, abs=0.1)
    assert all(came <= judged <= lane["ms"] for _, _, came, judged, _ in lane["tokens"])
    assert len({token[4] for token in lane["tokens"]}) == len(rounds(last.trace))


def test_the_accepted_branch_of_a_tree_comes_before_discarded_tokens():
    steps = (
        step(0, None, 1, " lost", "rejected", 0.1, round=1, verdict="rejected"),
        step(1, None, 1, " kept", "accepted", 0.5, round=1, verdict="accepted"),
        step(2, 0, 1, " deeper", "drafted", 0.1, round=1, verdict="ignored"),
        step(3, 1, 1, " own", "resampled", 0.5, round=1, verdict="resampled"),
    )
    drafter = Drafter("Tree", "medusa")
    screen = LaneView((drafter,), 2)
    screen.add(RaceUpdate(0, drafter, 0.5, Update(0, steps, 3)))
    [lane] = json.loads(screen.value())["lanes"]
    assert [token[0] for token in lane["tokens"]] == [" kept", " lost", " deeper", " own"]
    further = [
        step(id, None, 1, "\n", "rejected", 0.1, round=1, verdict="rejected") for id in range(4, 24)
    ]
    screen.add(RaceUpdate(0, drafter, 0.6, Update(0, tuple(further), 3)))
    [lane] = json.loads(screen.value())["lanes"]
    texts = [token[0] for token in lane["tokens"]]
    assert texts == [" kept", " lost", " deeper", *["⏎"] * 6, " +14 ", " own"]
    assert lane["tokens"][-2][5] == 14


def test_an_unavailable_drafter_shows_the_reason_in_its_lane():
    drafter = Drafter("Draft model", "speculative", unavailable_reason="It has no draft.")
    screen = LaneView((drafter,), 4)
    lane = Lane(drafter, error=drafter.unavailable_reason)
    screen.add(RaceUpdate(0, drafter, lane=lane))
    screen.add(RaceUpdate(0, drafter, result=Race((lane,))))
    shown = json.loads(screen.value())
    assert shown["over"] and shown["lanes"][0]["state"] == "failed"
    assert shown["lanes"][0]["error"] == "It has no draft."


def test_timed_runs_wait_for_each_other_and_can_be_stopped():
    track, stop, messages = TimedRuns(), threading.Event(), []
    assert track.acquire(stop, messages.append)
    stop.set()
    assert not track.acquire(stop, messages.append)
    other = threading.Event()
    waiting = threading.Thread(
        target=lambda: messages.append(track.acquire(other, messages.append))
    )
    waiting.start()
    wait(lambda: messages)
    assert "do not overlap" in messages[0]
    track.release()
    waiting.join(10)
    assert messages[1:] == [True]
    track.release()
    assert list(track.one_by_one(iter([1, 2]), other, messages.append)) == [1, 2]


def test_settings_apply_to_strategies_that_have_them_within_limits(lab):
    few = Playground(lab.model, limits=Limits(draft_tokens=3))
    early = Drafter("Exit", "early_exit", {"num_assistant_tokens": 8})
    values = form.configured(few, early, length=0, threshold=0.6, layer=5)
    assert values.settings == {
        "num_assistant_tokens": 3,
        "assistant_confidence_threshold": 0.6,
        "assistant_early_exit": 5,
    }
    values = form.configured(
        few, Drafter("Lookup", "prompt_lookup"), length=2, threshold=0.6, layer=5
    )
    assert values.settings == {"prompt_lookup_num_tokens": 2}


def test_the_description_of_early_exit_names_the_layer(lab):
    early = next(one for one in all_drafters(lab) if one.strategy == "early_exit")
    four, five = (
        form.configured(lab, early, length=0, threshold=None, layer=layer).about for layer in (4, 5)
    )
    assert "first 2 layers" in early.about and "an exit trained" in early.about
    assert "first 4 layers" in four and "an exit trained" in four
    assert "first 5 layers" in five and "without a trained exit" in five


def test_a_link_restores_the_race_form(browser, address):
    chosen = ["Early exit", "Prompt lookup"]
    with opened(browser, address) as page:
        ready(page)
        tab(page, "Speculative")
        page.get_by_role("checkbox", name=LOOKUP).wait_for()
        for box in page.locator("#spec-drafters input").all():
            box.set_checked(box.get_attribute("name") in chosen)
        page.fill("#spec-prompt textarea", EVIL)
        page.locator("#spec-kind").get_by_label("message to answer").check()
        fill(page, "spec-tokens", TOKENS)
        page.get_by_role("button", name="More settings").click()
        fill(page, "spec-layer", 4)
        page.locator("#spec-sampling input").check()
        page.wait_for_selector("#spec-temperature input >> nth=0")
        fill(page, "spec-temperature", 0.7)
        link = shared_link(page)[len(address) :]
        assert link.startswith("race#s=")
    with opened(browser, address, link) as page:
        for _ in range(2):
            on_tab(page, "Speculative")
            ready(page)
            wait(lambda: sorted(ticked(page)) == chosen)
            wait(lambda: page.input_value("#spec-prompt textarea") == EVIL)
            assert page.locator("#spec-kind").get_by_label("message to answer").is_checked()
            page.get_by_role("button", name="More settings").click()
            page.wait_for_selector("#spec-layer input >> nth=0")
            shown = {"tokens": TOKENS, "layer": 4, "temperature": 0.7, "length": 0}
            for name, value in shown.items():
                assert float(page.input_value(f"#spec-{name} input >> nth=0")) == value
            page.reload()


def ticked(page):
    return page.locator("#spec-drafters input:checked").evaluate_all("all => all.map(b => b.name)")


def test_invalid_values_of_a_link_are_replaced_and_reported(monkeypatch):
    warnings = []
    monkeypatch.setattr(controls, "warn", warnings.append)

    async def build():  # without a running event loop Gradio leaves one open
        with gr.Blocks():
            return form.build_form(Limits(max_new_tokens=30))

    drawn, _ = run_async(build())
    strange = {"tokens": 10**9, "layer": "five", "kind": "<b>", "threshold": 2, "seed": True}
    news = drawn.restore({**strange, "drafters": "all", "sampling": 1, "evil": {}})
    assert news[drawn.tokens] == 30
    assert news[drawn.from_link] is None
    for field in (drawn.layer, drawn.kind, drawn.threshold, drawn.seed, drawn.sampling):
        assert news[field] == field.value
    assert news.keys() == {*drawn.restorable}
    assert any("1000000000; it must be a number from 1 to 30" in text for text in warnings)
