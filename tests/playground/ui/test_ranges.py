"""Numbers out of range, typed or from a link: a message says so."""

import pytest

from playground.ui.compare import links
from playground.ui.compare.cards import Card
from tests.playground.ui.browsing import (
    editing,
    expect_message,
    opened,
    ready,
    refused,
    served,
    wait,
)

MODEL = "stories15m"  # starts fast


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with served(["app.py", "--port", "{port}", "--model", MODEL], log) as address:
        yield address


def link(**state):
    return "?__theme=light#s=" + links.encode(links.State(MODEL, "Once upon a time", **state))


def test_a_typed_number_out_of_range_is_named(browser, address):
    with opened(browser, address) as page:
        ready(page)
        field = page.locator("#shared-max_new_tokens input[type=number]")
        field.fill("0")
        field.press("Tab")
        note = page.locator(".out-of-range")
        assert note.inner_text() == (
            "0 is out of range: it must be from 1 to 1000. 1 is used instead."
        )
        wait(lambda: field.input_value() == "1")
        field.fill("5")
        field.press("Tab")
        note.wait_for(state="detached")
        assert field.input_value() == "5"


def test_a_link_with_a_number_out_of_range_shows_it_and_a_run_is_rejected(browser, address):
    with opened(browser, address, link(cards=(Card("sample", {"top_p": 2}),))) as page:
        ready(page)
        with editing(page, 0) as card:
            assert page.input_value(f"{card}-top_p") == "2"
        refused(page, "top_p is 2")


def test_a_link_with_a_shared_number_out_of_range_names_the_one_that_is_used(browser, address):
    with opened(browser, address, link(shared={"max_new_tokens": 100_000})) as page:
        expect_message(page, "The link sets max_new_tokens to 100000")
