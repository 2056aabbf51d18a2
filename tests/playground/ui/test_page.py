"""The compare page on the embedded model, used as a person would use it."""

import pytest

from playground.ui.compare.presets import FIRST, PRESETS
from tests.playground.ui.browsing import (
    LIMITS,
    box_of,
    cards,
    column,
    editing,
    figures,
    opened,
    over,
    ready,
    refused,
    remove_card,
    running,
    set_card,
    set_strategy,
    states,
    stored,
    text_of,
    wait,
)

LONGEST = LIMITS["--max-new-tokens"]


@pytest.fixture
def page(browser, address):
    with opened(browser, address) as page:
        ready(page)
        yield page


@pytest.fixture(scope="module")
def form(browser, address):
    """A page that tests share; each sets everything it depends on."""
    with opened(browser, address, lasting=True) as page:
        ready(page)
        yield page


@pytest.fixture(scope="module")
def ran(browser, address):
    """A page with a finished comparison of eight tokens, which tests leave as it is."""
    with opened(browser, address, lasting=True) as page:
        ready(page)
        length(page, 8)
        run(page)
        yield page


def length(page, tokens):
    slide(page, "shared-max_new_tokens", tokens)


def slide(page, id, value):
    page.fill(f"#{id} input[type=number]", str(value))
    page.keyboard.press("Tab")


def run(page):
    with running(page):
        pass


def test_tokens_appear_live_and_equal_those_of_the_lab(form, lab):
    page = form
    length(page, 16)
    seen = []
    with running(page):
        page.wait_for_selector("#live .token")
        while "writing" in states(page):
            seen.append(page.locator("#live .token").count())
            page.wait_for_timeout(50)
    traces = lab.compare(FIRST.prompt, FIRST.cards, max_new_tokens=16, seed=0)
    assert [text_of(page, index) for index in range(3)] == [trace.text for trace in traces]
    assert len(set(seen)) > 3, "the columns appeared at once"


def test_a_column_shows_its_metrics_and_its_stop_reason(ran, lab):
    page = ran
    [trace] = lab.compare(FIRST.prompt, ["greedy"], max_new_tokens=8)
    shown = figures(page, 0)
    assert shown["tokens"] == "8"
    passes = trace.forward_passes
    # The prompt's pass is one column's, unless an earlier run has made it.
    assert shown["forward passes"] in (str(passes), f"{passes - 1} + 1 for the prompt")
    assert float(shown["tokens/s"]) == pytest.approx(8 / float(shown["seconds"]), rel=0.1)
    assert shown["ended"] == "length limit: 8 new tokens"


def test_each_returned_beam_is_shown_with_its_score(ran, lab):
    page = ran
    [trace] = lab.compare(FIRST.prompt, [FIRST.cards[1]], max_new_tokens=8)
    choices = column(page, 1).locator(".sequences button")
    assert choices.count() == len(trace.sequences) == 3
    for index, sequence in enumerate(trace.sequences):
        choices.nth(index).click()
        wait(lambda text=sequence.text: text_of(page, 1) == text)
        assert choices.nth(index).inner_text() == f"{index + 1}. {sequence.score:.4f}"


def test_hovering_over_a_token_shows_its_candidates(ran, lab):
    page = ran
    [trace] = lab.compare(FIRST.prompt, [FIRST.cards[2]], max_new_tokens=8, seed=0)
    # The first step whose recorded candidates include some that a processor cut.
    at = next(
        at
        for at, step in enumerate(trace.steps)
        if any(candidate.final == 0 for candidate in step.distribution.candidates)
    )
    step = trace.steps[at]
    column(page, 2).locator(".token").nth(at).hover()
    card = page.locator("#live .candidates")
    card.wait_for(state="visible")
    assert f"rank {step.rank} in the model's own order" in card.inner_text()
    noun = "token" if step.distribution.kept == 1 else "tokens"
    assert f"{step.distribution.kept} {noun} could have been chosen" in card.inner_text()
    assert "processors: temperature → top_k → top_p" in card.inner_text()
    chosen = card.locator(".chosen").inner_text()
    assert step.token.text.strip() in chosen
    cut = sum(candidate.final == 0 for candidate in step.distribution.candidates)
    kept = min(12, len(step.distribution.candidates) - cut)
    assert card.locator("tr.cut").count() == min(cut, max(12 - kept, 6)) > 0
    page.mouse.move(5, 5)
    card.wait_for(state="hidden")


def test_arrow_keys_move_between_tokens_and_columns(ran):
    page = ran
    assert page.locator('#live [tabindex="0"]').count() == 3  # one tab stop per column
    column(page, 0).locator(".token").nth(0).focus()
    card = page.locator("#live .candidates")

    def focused():
        return page.evaluate(
            """() => {
                const at = document.activeElement;
                const all = [...at.parentNode.querySelectorAll('.token')];
                return [Number(at.closest('.column').dataset.index), all.indexOf(at)];
            }"""
        )

    for key, place in [
        ("ArrowRight", [0, 1]),
        ("ArrowRight", [0, 2]),
        ("ArrowDown", [1, 2]),
        ("ArrowLeft", [1, 1]),
        ("End", [1, 7]),
        ("ArrowUp", [0, 7]),
        ("Home", [0, 0]),
        ("ArrowLeft", [0, 0]),
    ]:
        page.keyboard.press(key)
        wait(lambda place=place: focused() == place)
        card.wait_for(state="visible")
    page.keyboard.press("Escape")
    card.wait_for(state="hidden")


def test_stop_ends_the_run_and_keeps_the_text(form):
    page = form
    length(page, LONGEST)
    page.wait_for_selector("#stop[disabled]")
    with running(page):
        page.wait_for_selector("#live .column[data-state=writing] .token")
        page.wait_for_selector("#run[disabled]")
        page.click("#stop")
    assert "stopped" in states(page)
    assert 0 < column(page, 0).locator(".token").count() < LONGEST
    assert page.inner_text("#live .status") == "Stopped. The text so far is kept."
    page.wait_for_selector("#stop[disabled]")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("#prompt textarea", "", "the prompt is empty"),
        ("#shared-stop_strings textarea", '["a', "stop_strings looks like JSON"),
        ("#shared-eos_token_id textarea", "<b>no such token</b>", "<b>no such token</b>"),
    ],
)
def test_invalid_input_shows_a_message_and_changes_nothing(ran, field, value, words):
    page = ran
    before = [text_of(page, index) for index in range(3)]
    if not page.locator(field).is_visible():
        page.click("#shared button")
    good = page.input_value(field)
    page.fill(field, value)
    page.keyboard.press("Tab")
    refused(page, words)
    assert [text_of(page, index) for index in range(3)] == before
    assert page.input_value(field) == value
    assert page.input_value("#shared-max_new_tokens input[type=number]") == "8"
    page.fill(field, good)
    page.keyboard.press("Tab")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("temperature", "0", "temperature is 0"),
        ("top_k", "-3", "top_k is -3"),
        ("top_p", "2", "top_p is 2"),
    ],
)
def test_an_invalid_setting_of_a_column_shows_a_message_and_is_kept(ran, name, value, words):
    page = ran
    before = [text_of(page, index) for index in range(3)]
    set_card(page, 2, **{name: value})
    refused(page, words)
    assert [text_of(page, index) for index in range(3)] == before
    assert page.locator("#live .next:visible").inner_text().startswith("Next run: sample · ")
    with editing(page, 2) as card:
        assert page.input_value(f"{card}-{name}") == value
        page.fill(f"{card}-{name}", str(FIRST.cards[2][1].get(name, "")))
    assert page.locator("#live .next:visible").count() == 0


def test_the_custom_strategy_is_not_offered_by_default(form):
    with editing(form, 0) as card:
        offered = form.locator(f"{card}-strategy option").all_inner_texts()
    assert "greedy" in offered and "custom" not in offered


def test_a_message_is_put_into_the_chat_template(form, lab):
    page = form
    page.fill("#prompt textarea", "Name three fruits.")
    page.locator("#kind").get_by_label("message to answer").check()
    length(page, 12)
    run(page)
    chat = [{"role": "user", "content": "Name three fruits."}]
    [trace] = lab.compare(chat, ["greedy"], max_new_tokens=12)
    assert text_of(page, 0) == trace.text


def test_shared_settings_apply_to_all_runs(page, lab):
    page.click("#shared button")
    page.fill("#shared-bad_words_ids textarea", "he, she")
    page.fill("#shared-repetition_penalty input", "1.3")
    page.fill("#shared-seed input", "7")
    length(page, 12)
    run(page)
    shared = {"bad_words_ids": ["he", "she"], "repetition_penalty": 1.3, "seed": 7}
    traces = lab.compare(FIRST.prompt, FIRST.cards, max_new_tokens=12, **shared)
    assert [text_of(page, index) for index in range(3)] == [trace.text for trace in traces]


def test_cards_keep_their_values_when_others_are_added_removed_or_changed(page, lab):
    set_card(page, 2, temperature=0.6)
    set_card(page, 1, num_beams=3)
    page.click("#add")
    wait(lambda: len(cards(page)) == 4)
    remove_card(page, 0)
    set_strategy(page, 2, "greedy")
    assert [card["strategy"] for card in cards(page)] == ["beam_search", "sample", "greedy"]
    assert cards(page)[1]["values"]["temperature"] == "0.6"
    length(page, 6)
    run(page)
    choices = [
        ("beam_search", {"num_beams": 3, "num_return_sequences": 3}),
        ("sample", {"temperature": 0.6, "top_p": 0.95}),
        "greedy",
    ]
    traces = lab.compare(FIRST.prompt, choices, max_new_tokens=6)
    assert [text_of(page, index) for index in range(3)] == [trace.text for trace in traces]


def test_the_number_of_cards_is_limited(form):
    page = form
    for _ in range(5):
        page.click("#add")
    assert len(cards(page)) == 6
    with editing(page, 0) as card:
        assert page.locator(f"{card}-duplicate").is_disabled()


def test_a_preset_fills_the_form_and_runs_at_once(form):
    page = form
    point = page.locator("#presets .point")
    for preset in PRESETS:  # each stops the one before
        before = stored(page, "feed")
        page.get_by_role("button", name=preset.title).click()
        wait(lambda preset=preset: point.inner_text() == preset.point)
        assert page.locator("#presets [aria-pressed=true]").all_inner_texts() == [preset.title]
        wait(lambda preset=preset: page.input_value("#prompt textarea") == preset.prompt)
        names = [strategy for strategy, _ in preset.cards]
        wait(lambda names=names: [card["strategy"] for card in cards(page)] == names)
        wait(lambda before=before: stored(page, "feed") != before)  # a run has started

    def stopped():
        page.evaluate("document.querySelector('#stop').click()")  # no effect while it is disabled
        return page.locator("#run:enabled").count() == 1

    wait(stopped)
    page.locator("#prompt textarea").press_sequentially(" on")
    point.wait_for(state="hidden")  # the sentence holds for the example only
    assert page.locator("#presets [aria-pressed=true]").count() == 0


def test_a_preset_outlines_what_its_sentence_speaks_of(form):
    page = form
    with over(page):
        page.get_by_role("button", name="Same seed, one setting changed").click()
    page.wait_for_selector("#live .spot")
    [spot] = page.locator(".spot").all()
    preset = next(preset for preset in PRESETS if preset.spot.token is not None)
    token = column(page, preset.spot.column).locator(".token").nth(preset.spot.token)
    assert spot.inner_text() == token.inner_text()
    assert page.locator("#tabs [role=tab][aria-selected=true]").inner_text() == "Charts"


def test_on_a_phone_columns_are_stacked_and_fit_the_screen(browser, address):
    small = {"width": 390, "height": 844}
    with opened(browser, address, viewport=small, has_touch=True) as page:
        ready(page)
        length(page, 10)
        run(page)
        column(page, 1).locator(".token").nth(3).tap()
        page.locator("#live .candidates").wait_for(state="visible")
        boxes = [box_of(column(page, index)) for index in range(3)]
        assert len({box["x"] for box in boxes}) == 1
        assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
        card = box_of(page.locator("#live .candidates"))
        assert card["x"] >= 0
        assert card["x"] + card["width"] <= 390
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
