"""A column goes to the Watermark or the Speculative page with one press, and comes back."""

import json

import pytest

from tests.playground.ui.browsing import (
    address_of,
    box_of,
    column,
    length,
    on_tab,
    opened,
    override,
    ready,
    running,
    set_card,
    tab,
    text_of,
    wait,
)

MARK = json.dumps({"seeding_scheme": "selfhash", "hashing_key": 42, "bias": 4.0})
LAPTOP = {"width": 1280, "height": 720}
FOCUSED = "document.activeElement.textContent"


@pytest.fixture(scope="module")
def page(browser, address):
    """Three columns: greedy, a beam search, and a sample with a watermark."""
    with opened(browser, address, viewport=LAPTOP, lasting=True) as page:
        page.set_default_timeout(60_000)
        ready(page)
        page.fill("#prompt textarea", "The sea")
        page.get_by_label("message to answer").first.check()
        page.fill("#shared-seed input", "7")
        set_card(page, 2, temperature=0.6)
        override(page, 2, "watermarking_config", MARK)
        length(page, 24)
        assert page.locator("#live .send").count() == 0, "only columns with a text have them"
        with running(page):
            pass
        yield page


def press(page, index, label):
    """Send a column to another page."""
    tab(page, "Compare")
    column(page, index).locator(".send", has_text=label).click()


def detected(page, name):
    page.locator("#detected [aria-busy=false] .name", has_text=name).wait_for()


def test_the_head_of_a_column_is_one_line(page):
    for index in range(3):
        head = column(page, index).locator(".head")
        title = box_of(head.locator("h3"))
        for button in head.locator(".tools button").all():
            box = box_of(button)
            assert box["height"] >= 24 and box["width"] >= 24
            assert abs(box["y"] + box["height"] / 2 - title["y"] - title["height"] / 2) < 8
        names = [one.get_attribute("aria-label") for one in head.locator(".send").all()]
        assert names[0].startswith("Detect a watermark in ")
        assert names[1].startswith("Race drafters on the prompt of ")


def test_a_column_is_detected_with_its_own_settings_or_the_defaults(page, address):
    press(page, 2, "Detect")
    wait(lambda: address_of(page).startswith(f"{address}watermark"))
    assert page.evaluate(FOCUSED) == "Watermark"
    detected(page, "3. sample")
    assert page.locator("#detect-where").get_by_label("a column").is_checked()
    assert page.input_value("#detect-column input") == "3. sample"
    assert page.input_value("#detect-hashing_key input") == "42"
    about = page.inner_text("#detected .verdict .about")
    assert about == "for the key 42 and the scheme selfhash"
    assert page.inner_text("#detected .text") == text_of(page, 2)
    press(page, 0, "Detect")
    detected(page, "1. greedy")
    assert page.input_value("#detect-column input") == "1. greedy"
    about = page.inner_text("#detected .verdict .about")
    assert about == "for the key 15485863 and the scheme lefthash"


def test_another_section_and_a_pasted_text_make_way_for_the_column(page):
    tab(page, "Watermark")
    page.locator("#detect-where").get_by_label("pasted text").check()
    page.fill("#detect-pasted textarea", "Something else. " * 9)
    detected(page, "Pasted text")
    tab(page, "Guess")
    press(page, 1, "Detect")
    on_tab(page, "Detect")
    detected(page, "2. beam search")
    page.locator("#detect-where").get_by_label("pasted text").check()
    assert page.input_value("#detect-pasted textarea").startswith("Something else.")


def test_back_returns_to_the_column(page, address):
    press(page, 2, "Detect")
    page.get_by_role("button", name="Back to column 3, sample").click()
    wait(lambda: address_of(page) == f"{address}?__theme=light")
    head = column(page, 2).locator(".head")
    wait(lambda: page.evaluate(FOCUSED) == "Detect")
    assert head.evaluate("head => head.contains(document.activeElement)")
    token, dock = column(page, 2).locator(".token").first, box_of(page.locator("#dock"))
    box = box_of(token)
    assert box["y"] >= 0 and box["y"] + box["height"] <= dock["y"]


def test_a_race_starts_from_the_prompt_and_the_settings_of_the_column(page, address):
    press(page, 2, "Race")
    wait(lambda: address_of(page).startswith(f"{address}race"))
    back = page.get_by_role("button", name="Back to column 3, sample")
    back.wait_for()
    assert page.input_value("#spec-prompt textarea") == "The sea"
    assert page.locator("#spec-kind").get_by_label("message to answer").is_checked()
    assert page.input_value("#spec-tokens input[type=number]") == "24"
    page.get_by_role("button", name="More settings").click()
    assert page.input_value("#spec-seed input") == "7"
    assert page.is_checked("#spec-sampling input")
    page.wait_for_selector("#spec-temperature")
    assert page.input_value("#spec-temperature input[type=number]") == "0.6"
    back.click()
    wait(lambda: page.evaluate(FOCUSED) == "Race")
    press(page, 0, "Race")
    page.get_by_role("button", name="Back to column 1, greedy").wait_for()
    wait(lambda: not page.is_checked("#spec-sampling input"))
    page.wait_for_selector("#spec-temperature", state="hidden")


def test_the_next_comparison_hides_the_way_back(page):
    press(page, 1, "Detect")
    page.get_by_role("button", name="Back to column 2, beam search").wait_for()
    tab(page, "Compare")
    length(page, 3)
    with running(page):
        pass
    tab(page, "Watermark")
    page.wait_for_selector("#detect-back", state="hidden")
