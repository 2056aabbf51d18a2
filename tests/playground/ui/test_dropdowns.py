"""Dropdowns with the keyboard: lists open on request only and close when the focus leaves."""

import pytest

from tests.playground.ui.browsing import opened, ready, tab

OPEN = "[role=combobox][aria-expanded=true], .options [role=listbox]"
MOST_STOPS = 120

# The pages, and the tabs of each that have dropdowns.
PAGES = {
    "": ("Export",),
    "race": ("Losslessness", "Draft length"),
    "watermark": ("Detect", "Attack", "Calibrate"),
}


def focused(page, selector):
    return page.locator(selector).evaluate("node => node === document.activeElement")


@pytest.mark.parametrize(("path", "tabs"), PAGES.items(), ids=["compare", *list(PAGES)[1:]])
def test_no_list_opens_or_stays_open_while_tabbing(browser, address, path, tabs):
    with opened(browser, address, f"{path}?__theme=light") as page:
        ready(page)
        if path == "race":
            page.get_by_role("button", name="More settings").click()
        for name in tabs:
            tab(page, name)
            page.evaluate("document.activeElement.blur()")
            reached = tabbed_through(page)
            assert reached, f"no dropdown among the tab stops of {path} {name}"


def tabbed_through(page):
    """Press Tab through the page; returns the number of dropdowns that got the focus."""
    reached = 0
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate("document.activeElement.getAttribute('role') ?? ''")
        reached += stop == "combobox"
        assert page.locator(OPEN).count() == 0
        if page.evaluate("document.activeElement === document.body"):
            break
    return reached


@pytest.mark.parametrize("key", ["Enter", " ", "ArrowDown", "click"])
def test_a_list_opens_on_a_key_or_a_click_and_closes_with_tab(browser, address, key):
    with opened(browser, address) as page:
        ready(page)
        field = "#model input"
        page.focus("#backend button")
        page.keyboard.press("Shift+Tab")
        assert focused(page, field) and page.locator(OPEN).count() == 0
        if key == "click":
            page.click(field)
        else:
            page.keyboard.press(key)
        page.wait_for_selector("#model .options [role=listbox]")
        assert focused(page, field)
        page.keyboard.press("Tab")
        page.wait_for_selector("#model .options [role=listbox]", state="detached")
        assert page.locator(OPEN).count() == 0
        assert focused(page, "#backend button")


def test_an_option_is_chosen_with_the_arrow_keys(browser, address):
    with opened(browser, address) as page:
        ready(page)
        tab(page, "Speculative")
        page.get_by_role("button", name="More settings").click()
        page.locator("#spec-threshold input").wait_for()
        page.get_by_role("button", name="More settings").focus()
        page.keyboard.press("Tab")
        field = "#spec-threshold input"
        assert focused(page, field)
        for key in ("Enter", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        page.wait_for_function("document.querySelector('#spec-threshold input').value === '0'")
        page.wait_for_selector("#spec-threshold .options", state="detached")
        assert page.locator(OPEN).count() == 0
