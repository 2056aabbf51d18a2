"""What is visible without scrolling, how pages are reached, and that switching keeps everything."""

import itertools

import pytest

from tests.playground.ui.browsing import (
    address_of,
    box_of,
    cards,
    column,
    length,
    on_tab,
    opened,
    ready,
    running,
    set_card,
    tab,
    text_of,
    wait,
)

SCREENS = {"laptop": (1280, 720), "desktop": (1440, 900), "tablet": (820, 1180)}
PHONE = (390, 844)


@pytest.mark.parametrize("size", [*SCREENS.values(), PHONE], ids=[*SCREENS, "phone"])
def test_run_and_the_first_tokens_are_visible_without_scrolling(browser, address, size):
    width, height = size
    with opened(browser, address, viewport={"width": width, "height": height}) as page:
        ready(page)
        assert inside(page, "#run", height)
        length(page, 4)
        with running(page):
            pass
        shown = 1 if size == PHONE else 3  # a phone stacks the columns
        for index in range(shown):
            token = column(page, index).locator(".token").first
            box = box_of(token)
            assert box["y"] >= 0 and box["y"] + box["height"] <= height
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("size", [*SCREENS.values(), PHONE], ids=[*SCREENS, "phone"])
def test_race_is_visible_without_scrolling(browser, address, size):
    width, height = size
    options = {"viewport": {"width": width, "height": height}}
    with opened(browser, address, "race?__theme=light", **options) as page:
        page.get_by_role("checkbox", name="Prompt lookup").wait_for()
        assert inside(page, "#spec-race", height)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("size", [*SCREENS.values(), PHONE], ids=[*SCREENS, "phone"])
def test_text_scheme_key_and_verdict_are_visible_without_scrolling(browser, address, size):
    width, height = size
    viewport = {"width": width, "height": height}
    with opened(browser, address, "watermark?__theme=light", viewport=viewport) as page:
        ready(page)
        page.fill("#detect-pasted textarea", "The lighthouse stands on a rock. " * 12)
        page.wait_for_selector("#detected .verdict b")
        for name in ("pasted", "scheme", "hashing_key"):
            assert inside(page, f"#detect-{name}", height), name
        assert inside(page, "#detected .verdict", height)
        page.click("#detect-other-scheme")
        page.locator("#detected .about", has_text="selfhash").wait_for()
        page.click("#detect-other-scheme")
        page.locator("#detected .about", has_text="synthid").wait_for()
        for part in ("#detect-scheme", "#detect-keys", "#detected .verdict"):
            assert inside(page, part, height), part
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_header_is_one_line_with_a_hint_about_the_backend(browser, address):
    with opened(browser, address, viewport={"width": 1280, "height": 720}) as page:
        ready(page)
        assert box_of(page.locator("#head"))["height"] <= 48
        parts = ["#head h1", "#pages > .tab-wrapper", "#backend button", "#model", "#share"]
        boxes = [box_of(page.locator(part).first) for part in parts]
        for left, right in itertools.pairwise(boxes):
            assert left["x"] + left["width"] <= right["x"]
        hint = page.locator("#backend p")
        assert not hint.is_visible()
        page.focus("#backend button")
        assert hint.is_visible()
        assert hint.inner_text().startswith("Runs on the trie backend")


# 200 % on a screen of 1280 x 720, and 150 %.
ZOOMED = [{"width": 640, "height": 360}, {"width": 853, "height": 480}]
PARTS = {
    "": ("#head", "#pages > .tab-wrapper", "#bar", "#below-bar", "#live", "#dock"),
    "race": ("#head", "#pages > .tab-wrapper", "#spec-form", "#spec-course", "#spec-tabs"),
    "watermark": ("#head", "#pages > .tab-wrapper", "#watermark-tabs"),
}


@pytest.mark.parametrize("viewport", ZOOMED, ids=["200 %", "150 %"])
@pytest.mark.parametrize("path", PARTS)
def test_a_zoomed_page_is_usable(browser, address, path, viewport):
    options = {"viewport": viewport, "device_scale_factor": 1280 / viewport["width"]}
    with opened(browser, address, f"{path}?__theme=light", **options) as page:
        ready(page)
        if path == "":
            length(page, 4)
            with running(page):
                pass
            column(page, 2).locator(".token").first.click()
            page.wait_for_selector("#step-view .stages")
            page.keyboard.press("Escape")
            page.wait_for_selector("#live-candidates", state="hidden")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        boxes = [box_of(page.locator(part).first) for part in PARTS[path]]
        for above, below in itertools.pairwise(boxes):
            assert above["y"] + above["height"] <= below["y"] + 1
        for box in boxes:
            assert box["x"] >= 0 and box["x"] + box["width"] <= viewport["width"]


def inside(page, selector, height):
    box = box_of(page.locator(selector))
    return box["y"] >= 0 and box["y"] + box["height"] <= height


def test_a_token_and_the_reason_for_it_share_the_screen(browser, address):
    with opened(browser, address, viewport={"width": 1280, "height": 720}) as page:
        ready(page)
        length(page, 4)
        with running(page):
            pass
        column(page, 2).locator(".token").nth(2).click()
        page.wait_for_selector("#step-view .stages")
        page.keyboard.press("Escape")
        dock = box_of(page.locator("#dock"))
        assert dock["y"] + dock["height"] <= 721
        token = box_of(column(page, 2).locator(".token").nth(2))
        assert token["y"] >= 0 and token["y"] + token["height"] <= dock["y"]
        assert inside(page, "#step-view .decision .chosen", 720)


def test_run_is_reached_within_six_tabs_from_the_prompt(browser, address):
    with opened(browser, address) as page:
        ready(page)
        page.focus("#prompt textarea")
        for _ in range(6):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('#run') !== null"):
                return
        raise AssertionError("Run is not among the first six tab stops after the prompt")


def test_ctrl_enter_runs(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 2)
        page.focus("#prompt textarea")
        before = page.input_value("#prompt textarea")
        page.keyboard.press("Control+Enter")
        wait(lambda: text_of(page, 0) != "")
        assert page.input_value("#prompt textarea") == before
        page.wait_for_selector("#run:not([disabled])")


@pytest.mark.parametrize(
    ("path", "title"), [("race", "Speculative"), ("watermark", "Watermark"), ("", "Compare")]
)
def test_every_page_has_an_address(browser, address, path, title):
    with opened(browser, address, f"{path}?__theme=light") as page:
        on_tab(page, title)
        page.wait_for_selector("#loading", state="hidden")


def test_switching_pages_changes_the_address_and_keeps_what_was_entered(browser, address):
    with opened(browser, address) as page:
        ready(page)
        page.fill("#prompt textarea", "The sea")
        set_card(page, 2, temperature=0.4)
        length(page, 3)
        with running(page):
            pass
        written = [text_of(page, index) for index in range(3)]
        tab(page, "Watermark")
        wait(lambda: address_of(page).startswith(f"{address}watermark"))
        tab(page, "Speculative")
        wait(lambda: address_of(page).startswith(f"{address}race"))
        page.fill("#spec-prompt textarea", "The land")
        tab(page, "Compare")
        wait(lambda: address_of(page) == f"{address}?__theme=light")
        assert page.input_value("#prompt textarea") == "The sea"
        assert cards(page)[2]["values"]["temperature"] == "0.4"
        assert [text_of(page, index) for index in range(3)] == written
        tab(page, "Tree")
        wait(lambda: address_of(page).endswith("#tab=tree"))
        tab(page, "Speculative")
        wait(lambda: address_of(page).startswith(f"{address}race"))
        assert page.input_value("#spec-prompt textarea") == "The land"
        page.reload()
        on_tab(page, "Speculative")


def test_quick_switches_end_on_the_page_that_was_chosen_last(browser, address):
    with opened(browser, address) as page:
        ready(page)
        for title in ["Speculative", "Compare", "Watermark"] * 3:
            tab(page, title)
        wait(lambda: address_of(page).startswith(f"{address}watermark"))
        tab(page, "Compare")
        wait(lambda: address_of(page) == f"{address}?__theme=light")


def test_the_dock_is_resized_and_hidden_by_keyboard(browser, address):
    with opened(browser, address) as page:
        ready(page)
        page.focus("#dock-handle .edge")
        page.keyboard.press("ArrowUp")
        before = box_of(page.locator("#dock"))["height"]
        page.keyboard.press("ArrowUp")
        assert box_of(page.locator("#dock"))["height"] == pytest.approx(before + 32, abs=1)
        page.click("#dock-handle .fold")
        page.wait_for_selector("#step-view", state="hidden")
        tab(page, "Tree")
        page.wait_for_selector("#tree-view", state="visible")
