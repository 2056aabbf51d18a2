"""The Share button: one press copies a link that restores the open page."""

import pytest

from tests.playground.ui.browsing import (
    length,
    on_tab,
    opened,
    ready,
    shared_link,
    tab,
    text_of,
    visiting,
    wait,
)

CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copied(page):
    return page.evaluate("navigator.clipboard.readText()")


def copied_link(page, button="#share .copy"):
    """Press Share and wait for the note, which is shown for a moment; returns the link."""
    page.click(button)
    page.wait_for_selector("#share .note[role=status] >> text=Link copied")
    return page.input_value("#share-link")


def test_one_press_copies_a_link_and_says_so_for_a_moment(browser, address):
    with opened(browser, address, **CLIPBOARD) as page:
        ready(page)
        page.fill("#prompt textarea", "The sea")
        link = copied_link(page)
        assert copied(page) == link and link.startswith(f"{address}#s=")
        assert page.locator("#share .by-hand").is_hidden()
        page.wait_for_selector("#share .note", state="hidden")
    with opened(browser, address, link[len(address) :]) as page:
        wait(lambda: page.input_value("#prompt textarea") == "The sea")


def test_the_menu_copies_a_link_that_runs_when_opened(browser, address):
    with opened(browser, address, **CLIPBOARD) as page:
        ready(page)
        length(page, 3)
        page.click("#share .more")
        assert page.get_attribute("#share .more", "aria-expanded") == "true"
        page.keyboard.press("Escape")
        page.wait_for_selector("#share .menu", state="hidden")
        page.click("#share .more")
        link = copied_link(page, "#share .running")
        assert copied(page) == link and link.endswith("&run")
        assert page.locator("#share .menu").is_hidden()
    with opened(browser, address, link[len(address) :]) as page:
        wait(lambda: text_of(page, 0) != "", seconds=60)
        page.wait_for_selector("#run:not([disabled])", timeout=60_000)


@pytest.mark.parametrize(("title", "path"), [("Speculative", "race"), ("Watermark", "watermark")])
def test_a_link_opens_the_page_it_was_made_on(browser, address, title, path):
    with opened(browser, address) as page:
        ready(page)
        tab(page, title)
        wait(lambda: page.locator("#share .more").is_hidden())
        link = shared_link(page)
        assert link.startswith(f"{address}{path}#s=")
    with opened(browser, address, link[len(address) :]) as page:
        on_tab(page, title)


def test_without_a_clipboard_the_link_is_shown_and_selected(browser, address):
    with visiting(browser, lasting=True) as page:
        page.goto(address)
        ready(page)
        deny_clipboard(browser, page)
        link = shared_link(page)
        page.wait_for_selector("#share .by-hand:not([hidden])")
        field = page.locator("#share-link")
        selection = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
        assert field.evaluate(selection) == link
        assert field.evaluate("field => document.activeElement === field")
        assert page.locator("#share .note").text_content() == ""
        page.keyboard.press("Escape")
        page.wait_for_selector("#share .by-hand", state="hidden")


def deny_clipboard(browser, page):
    target = page.context.new_cdp_session(page).send("Target.getTargetInfo")["targetInfo"]
    denied = {"permission": {"name": "clipboard-write"}, "setting": "denied"}
    context = {"browserContextId": target["browserContextId"]}
    browser.new_browser_cdp_session().send("Browser.setPermission", denied | context)
