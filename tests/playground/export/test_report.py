"""The HTML report, opened in a real browser without a network."""

import dataclasses
import json
import re
import sys

import plotly.graph_objects as go
import pytest

import visualizers
from engine.errors import PlaygroundError
from engine.trace import Trace
from playground.export.report import report
from visualizers import View


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report and records its requests and its console messages."""
    contexts = []

    def opened(traces, **options):
        file = tmp_path / "report.html"
        file.write_text(report(traces), encoding="utf-8")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.requests, page.messages = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


def shown(page):
    card = page.locator("#card")
    return card.inner_text() if card.is_visible() else None


def test_report_sends_no_requests_and_logs_nothing(opened, toy_traces):
    page = opened(toy_traces)
    page.wait_for_selector("#beam-trees [role=treeitem]")
    page.wait_for_selector("#probability .main-svg")
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.messages == []


def test_token_that_looks_like_html_is_shown_as_text(opened, toy_traces):
    page = opened(toy_traces)
    evil = toy_traces[0].steps[3].text
    assert page.locator(".token").nth(3).inner_text() == evil
    page.locator(".token").nth(3).hover()
    assert evil.replace(" ", "␣") in shown(page)
    assert page.locator("img").count() == 0
    assert page.evaluate("window.evil") is None
    assert page.locator(".prompt").inner_text() == toy_traces[0].prompt


def test_hovering_a_token_shows_its_candidates(opened, greedy_trace):
    page = opened([greedy_trace])
    page.locator(".token").nth(1).hover()
    card = shown(page)
    assert "⏎ chosen, rank 1" in card
    assert "model 40.0%, as used 55.0%" in card
    assert "entropy 1.50 nats, as used 0.50" in card
    assert re.search(r"▸ ⏎\s+40\.0%\s+55\.0%", card)
    assert re.search(r"␣rival\s+45\.0%\s+45\.0%", card)
    assert re.search(r"15\.0%\s+cut", card)
    page.mouse.move(5, 5)
    assert shown(page) is None


def test_arrow_keys_move_between_tokens(opened, greedy_trace):
    page = opened([greedy_trace])
    page.keyboard.press("Tab")
    assert shown(page).startswith("␣Hi")
    page.keyboard.press("ArrowRight")
    assert shown(page).startswith("⏎")
    page.keyboard.press("End")
    assert shown(page).startswith(".")
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "card"
    page.keyboard.press("Escape")
    assert shown(page) is None


def test_report_shows_settings_stop_rule_and_costs(opened, toy_traces):
    page = opened(toy_traces)
    greedy, beam, failed = (page.locator("article").nth(at).inner_text() for at in range(3))
    assert "max_new_tokens = 5" in greedy and "length (max_new_tokens=5)" in greedy
    assert "num_beams = 2" in beam and "toy" in beam
    assert "10 for 20 tokens" in beam and "2.50 s" in beam
    assert "score -0.3200, 3 tokens" in beam and "score -0.9300, 3 tokens" in beam
    assert "dola needs <more> layers" in failed


def test_report_shows_drafted_and_accepted_tokens(opened, greedy_trace):
    fates = ("accepted", "rejected", "ignored", "ignored", "bonus")
    steps = tuple(
        dataclasses.replace(step, notes={"verdict": fate})
        for step, fate in zip(greedy_trace.steps, fates, strict=True)
    )
    ticks = (dataclasses.replace(greedy_trace.ticks[0], draft_passes=4),)
    page = opened([dataclasses.replace(greedy_trace, steps=steps, ticks=ticks), greedy_trace])
    drafting, plain = (page.locator("article").nth(at).inner_text() for at in range(2))
    assert "draft passes\n4" in drafting and "accepted\n1 of 4 drafted" in drafting
    assert "draft" not in plain


def test_token_that_was_not_captured_is_outlined(opened, greedy_trace):
    nothing = {"raw": None, "final": None, "rank": None, "distribution": None}
    first, *rest = greedy_trace.steps
    steps = (dataclasses.replace(first, **nothing), *rest)
    page = opened([dataclasses.replace(greedy_trace, steps=steps)])
    outline = "token => getComputedStyle(token).outlineStyle"
    assert page.locator(".token").nth(0).evaluate(outline) == "dotted"
    assert page.locator(".token").nth(1).evaluate(outline) == "none"
    assert page.locator(".legend .unseen").inner_text() == "not captured"
    page.locator(".token").nth(0).hover()
    assert "not captured" in shown(page)
    assert opened([greedy_trace]).locator(".legend .unseen").count() == 0


def test_raw_values_that_were_not_captured_are_named_as_such(opened, greedy_trace):
    first, *rest = greedy_trace.steps
    candidates = tuple(item._replace(raw=None) for item in first.distribution.candidates)
    given = dataclasses.replace(first.distribution, candidates=candidates, raw_entropy=None)
    step = dataclasses.replace(first, raw=None, rank=None, distribution=given)
    page = opened([dataclasses.replace(greedy_trace, steps=(step, *rest))])
    page.locator(".token").nth(0).hover()
    card = shown(page)
    assert "rank not captured" in card and "model not captured, as used" in card
    assert "entropy not captured nats" in card
    assert page.messages == []


def test_view_that_returns_a_plain_figure_is_drawn(opened, greedy_trace, monkeypatch):
    figure = go.Figure(go.Bar(y=[1]))
    plain = View("plain", "Plain", "charts", 0, Trace, bool, 1, lambda traces: figure)
    monkeypatch.setattr(visualizers, "applicable", lambda traces: [plain])
    page = opened([greedy_trace])
    page.wait_for_selector("#plain .main-svg")
    assert page.messages == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_fits_a_phone_and_follows_the_theme(opened, toy_traces, scheme):
    phone = {"viewport": {"width": 390, "height": 800}, "color_scheme": scheme}
    page = opened(toy_traces, **phone)
    page.wait_for_selector("#beam-trees [role=treeitem]")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ink = page.evaluate("getComputedStyle(document.body).color")
    tick = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert tick == ink == {"light": "rgb(28, 32, 38)", "dark": "rgb(232, 234, 238)"}[scheme]


def test_tap_shows_the_card(opened, greedy_trace):
    page = opened([greedy_trace], has_touch=True)
    page.locator(".token").nth(0).tap()
    assert shown(page).startswith("␣Hi")


def test_runs_with_different_prompts_show_their_own(opened, greedy_trace):
    other = dataclasses.replace(greedy_trace, prompt="Another")
    page = opened([greedy_trace, other])
    assert page.locator("article .prompt").all_inner_texts() == [greedy_trace.prompt, "Another"]


def test_report_without_steps_does_not_contain_plotly(failed_trace):
    for traces in ([], [failed_trace]):
        assert len(report(traces)) < 30_000


def test_text_cannot_close_the_script_element(greedy_trace):
    evil = dataclasses.replace(greedy_trace.steps[0].token, text="</script><script>evil()")
    step = dataclasses.replace(greedy_trace.steps[0], token=evil, text=evil.text)
    page = report([dataclasses.replace(greedy_trace, steps=(step, *greedy_trace.steps[1:]))])
    assert "<script>evil" not in page
    data = re.search(r'<script type="application/json" id="runs">(.*?)</script>', page)
    assert json.loads(data[1])[0][0]["token"] == evil.text


def test_missing_plotly_raises_a_playground_error(monkeypatch, greedy_trace):
    for name in [name for name in sys.modules if name.split(".")[0] == "visualizers"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(PlaygroundError, match="pip install plotly"):
        report([greedy_trace])
