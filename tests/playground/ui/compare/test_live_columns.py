"""The live columns on scripted runs: hostile text, revisions, failures, visitors who leave."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from playground.ui.compare.cards import Card
from playground.ui.compare.links import State, encode
from tests.playground.ui.browsing import (
    WIDE,
    box_of,
    cards,
    column,
    figures,
    opened,
    ready,
    refused,
    remove_card,
    running,
    served,
    states,
    stored,
    tab,
    text_of,
    visiting,
    wait,
)
from tests.playground.ui.scripted_page import EVIL, FAMILY

PAGE = Path(__file__).parents[1] / "scripted_page.py"
WRITTEN = "#live .column[data-state=writing] .token"  # not those of an earlier run


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address, the file that lets the model load, and the log."""
    folder = tmp_path_factory.mktemp("toy")
    gate, log = folder / "gate", folder / "log"
    bug = ("Traceback (most recent call last)", "RuntimeError: a bug")  # of the script "broken"
    with served([PAGE, "{port}", gate, folder / "turns"], log, bug) as address:
        yield address, gate, log


@pytest.fixture
def turns(server):
    """The file with the turns a script may take; without it no turn waits."""
    turns = server[1].with_name("turns")
    turns.touch()
    yield turns
    turns.unlink()


@pytest.fixture(scope="module")
def page(server, browser):
    """A page that tests share: each runs its own script."""
    address, gate, _ = server
    gate.touch()
    with opened(browser, address, lasting=True) as page:
        ready(page)
        yield page


@contextmanager
def following(page, script):
    page.fill("#prompt textarea", script)
    with running(page):
        yield


def test_the_page_opens_before_the_model_is_loaded_and_shows_the_progress(server, browser):
    address, gate, _ = server
    with opened(browser, address) as page:
        page.wait_for_function("document.querySelector('#loading')?.innerText.endsWith(' s')")
        assert page.inner_text("#loading").startswith("Loading toy")
        page.wait_for_selector("#run[disabled]")
        assert cards(page, "catalog") is None
        page.click("#card-0-open")
        settings = page.locator("#card-0-override option")
        assert settings.count() == 1  # nothing to choose from
        gate.touch()
        page.wait_for_selector("#run:not([disabled])")
        wait(lambda: settings.count() > 1)
        page.keyboard.press("Escape")
        assert page.input_value("#model input") == "toy"
        assert not page.locator("#loading").is_visible()
        page.get_by_label("How toy is run").focus()
        assert page.locator("#backend p").inner_text() == "Runs on the plain backend."
        fallbacks = page.locator("#fallbacks p")
        assert all(line.is_visible() for line in fallbacks.all())
        assert fallbacks.all_inner_texts() == [
            "Not used: toy models have no cache.",
            "Not used: fused layers: not on <toy> models.",
        ]


# Delays every result of the server by a tenth of a second.
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


def test_no_result_is_lost_on_a_slow_connection(server, browser):
    address, gate, _ = server
    gate.touch()
    link = "#s=" + encode(State("toy", "drafts", cards=(Card("greedy"),) * 2))
    with visiting(browser) as page:
        page.add_init_script(LATE)
        page.goto(address + link)
        wait(lambda: page.input_value("#prompt textarea") == "drafts")
        with running(page):
            pass


def test_model_text_is_never_interpreted_as_html(page):
    with following(page, "toys"):
        pass
    assert text_of(page, 0) == f" a\n{EVIL}"
    assert EVIL in column(page, 0).locator(".figures").text_content()
    column(page, 0).locator(".token").nth(2).hover()
    rows = page.locator("#live .candidates tr")
    wait(lambda: any(row.startswith("<img␣src=x") for row in rows.all_inner_texts()))
    assert page.evaluate("window.evil") is None
    assert page.locator("#live img, #live script").count() == 0


def test_an_error_is_shown_in_its_column_while_other_runs_continue(page, turns):
    turns.write_text("..")
    with following(page, "toys"):
        page.wait_for_selector("#live:has([data-state=failed]):has([data-state=writing])")
        turns.write_text("...")
    assert states(page) == ["done", "done", "failed"]
    assert page.inner_text("#live .failure") == f"no more memory {EVIL}"
    assert text_of(page, 2) == " half"
    assert page.inner_text("#live .status") == "Done in 0.4 s; 1 of 3 failed."


def test_beams_revise_their_text_and_each_returned_one_is_shown(page, turns):
    with following(page, "toys"):
        for text, granted in ((" one", "."), (" one more", ".."), (" two end", "...")):
            wait(lambda text=text: text_of(page, 1) == text)
            turns.write_text(granted)
    choices = column(page, 1).locator(".sequences button")
    assert choices.all_inner_texts() == ["1. -0.1000", "2. -0.2500"]
    choices.nth(1).click()
    wait(lambda: text_of(page, 1) == " one more")
    assert column(page, 1).locator('[aria-pressed="true"]').inner_text() == "2. -0.2500"


def test_equal_returned_texts_are_selected_one_by_one(page):
    with following(page, "equal"):
        pass
    choices = column(page, 0).locator(".sequences button")
    for at, text in ((0, " one"), (1, " two"), (2, " two"), (1, " two")):
        choices.nth(at).click()
        pressed = [str(place == at).lower() for place in range(3)]
        wait(
            lambda pressed=pressed: (
                [choice.get_attribute("aria-pressed") for choice in choices.all()] == pressed
            )
        )
        assert text_of(page, 0) == text


# The greatest distance, in pixels, of a character in a column from its place in plain text.
DISTANCE = """text => {
    const places = (root) => {
        const found = [];
        const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
            for (let at = 0; at < walk.currentNode.length; at++) {
                const range = document.createRange();
                range.setStart(walk.currentNode, at);
                range.setEnd(walk.currentNode, at + 1);
                const { left, top } = range.getBoundingClientRect();
                if (walk.currentNode.data[at] !== '\\n') found.push([left, top]);
            }
        }
        return found;
    };
    const plain = text.cloneNode();
    const [prompt, ...tokens] = text.children;
    plain.append(prompt.cloneNode(true), tokens.map((token) => token.textContent).join(''));
    const shown = places(text);
    text.replaceWith(plain);
    const expected = places(plain);
    plain.replaceWith(text);
    const distance = ([x, y], at) => Math.hypot(x - expected[at][0], y - expected[at][1]);
    return Math.max(...shown.map(distance));
}"""


def test_right_to_left_text_is_laid_out_like_plain_text(page):
    with following(page, "writing"):
        pass
    text = column(page, 0).locator(".text")
    assert text.evaluate(DISTANCE) < 1.0
    tokens = column(page, 0).locator(".token").all()
    first, second, right = box_of(tokens[0]), box_of(tokens[1]), box_of(text)
    prompt = box_of(text.locator(".prompt"))
    assert second["x"] < first["x"]
    assert first["x"] + first["width"] == pytest.approx(prompt["x"], abs=1)
    assert prompt["x"] + prompt["width"] == pytest.approx(right["x"] + right["width"], abs=1)
    assert text_of(page, 0) == "שלום עולם, abc 12 שנים.\nمرحبا بالعالم!"


def test_columns_show_the_end_of_their_prompt_and_all_of_it_if_the_form_has_another(page):
    with following(page, "writing"):
        pass
    tails, lines = page.locator("#live .text > .prompt"), page.locator("#live .whole-prompt")
    assert tails.all_text_contents() == ["writing"] * 3
    assert tails.first.evaluate("tail => getComputedStyle(tail).unicodeBidi") == "isolate"
    assert not any(line.is_visible() for line in lines.all())
    page.fill("#prompt textarea", "drafts")
    page.keyboard.press("Tab")
    wait(lambda: all(line.is_visible() for line in lines.all()))
    assert lines.all_inner_texts() == ["Prompt writing"] * 3
    assert not any(tail.is_visible() for tail in tails.all())
    page.fill("#prompt textarea", "writing")
    page.keyboard.press("Tab")
    wait(lambda: tails.first.is_visible() and not lines.first.is_visible())


def test_a_character_split_over_tokens_is_shown_once_with_its_parts_on_hover(page):
    with following(page, "writing"):
        pass
    shown = [column(page, index).locator(".token:not(.part)") for index in range(3)]
    family = "".join(FAMILY)
    assert [text.strip() for text in shown[1].all_text_contents()] == (
        ["hi", "😀", "😀", "", family, "", "🇩🇪", "", "👍🏽", "!"]
    )
    assert shown[2].all_text_contents()[:2] == [" caf", "e\u0301"]
    assert column(page, 0).locator("[data-mark]").count() == 1  # the line break
    face = column(page, 1).locator(".token").nth(5)
    assert face.get_attribute("aria-label").startswith("😀, in 3 tokens")
    face.hover()
    parts = page.locator("#live .candidates .parts button")
    wait(lambda: parts.all_inner_texts() == ["<0xF0><0x9F>", "<0x98>", "<0x80>"])
    parts.nth(1).click()
    wait(lambda: stored(page, "cursor")["at"] == 4)
    assert page.inner_text("#live .candidates .where").startswith("<0x98> token 5 of")
    wait(lambda: "around" in face.get_attribute("class").split())
    page.keyboard.press("Escape")


def test_a_token_that_was_not_captured_has_a_dotted_outline(page):
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


def test_a_run_with_drafts_shows_how_many_were_accepted(page):
    with following(page, "drafts"):
        pass
    shown = figures(page, 1)
    assert (shown["forward passes"], shown["draft passes"]) == ("1", "3")
    assert shown["accepted"] == "1 of 3 drafted"
    for column_without in (0, 2):
        assert not {"draft passes", "accepted"} & figures(page, column_without).keys()


def test_no_token_is_lost_when_updates_are_faster_than_frames(page):
    with following(page, "many"):
        page.wait_for_selector(WRITTEN)
        # A busy browser misses updates.
        page.evaluate("() => { const end = Date.now() + 1500; while (Date.now() < end); }")
    assert text_of(page, 0) == "".join(f"{id} " for id in range(300))


# Whether an element lies inside the window.
INSIDE = """card => {
    const { left, right, top, bottom } = card.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    return right > left && left >= 0 && right <= clientWidth && top >= 0 && bottom <= clientHeight;
}"""


def hovered(page, name, tip):
    """Move the pointer onto an element; whether its card or tip lies inside the window then. The
    page may still move below the pointer: the tabs draw their views."""
    page.mouse.move(0, 0)
    # Hovering scrolls, and an open card follows its token: it may come to lie under the pointer.
    page.locator("#live .candidates").wait_for(state="hidden")
    name.hover()
    return tip.evaluate(INSIDE)


@pytest.mark.parametrize("width", [1400, 500])
def test_cards_and_tips_stay_inside_the_window(page, width):
    with following(page, "drafts"):
        pass
    page.set_viewport_size({"width": width, "height": 800})
    try:
        # In one call: rejected drafts are removed after a moment.
        tokens = page.locator("#live .token")
        places = tokens.evaluate_all("all => all.map((token) => token.getBoundingClientRect().x)")
        rightmost, card = tokens.nth(places.index(max(places))), page.locator("#live .candidates")
        wait(lambda: hovered(page, rightmost, card))
        column(page, 0).get_by_role("button", name="All figures").click()
        for pair in page.locator("#live .figures div:has(.tip)").all():
            wait(lambda pair=pair: hovered(page, pair.locator("button"), pair.locator(".tip")))
        column(page, 0).get_by_role("button", name="Fewer figures").click()
    finally:
        page.set_viewport_size(WIDE)


def test_no_card_is_open_during_a_replay(page):
    with following(page, "many"):
        pass
    card, tokens = page.locator("#live .candidates"), column(page, 0).locator(".token")
    tokens.nth(4).click()
    card.wait_for()
    page.keyboard.press("Space")  # replay from here
    card.wait_for(state="hidden")
    wait(lambda: tokens.count() > 8)
    tokens.nth(2).hover()
    page.wait_for_timeout(400)
    assert stored(page, "replaying") and not card.is_visible()
    tokens.nth(2).click()
    card.wait_for()
    assert not stored(page, "replaying")
    assert stored(page, "cursor")["at"] == 2


def test_a_card_leaves_the_window_with_its_token(page):
    with following(page, "drafts"):
        pass
    card = page.locator("#live .candidates")
    column(page, 0).locator(".token").first.click()
    card.wait_for()
    page.evaluate("document.body.style.paddingBottom = '3000px'")
    try:
        page.evaluate("scrollTo(0, 3000)")
        card.wait_for(state="hidden")
        column(page, 0).locator(".token").first.scroll_into_view_if_needed()
        card.wait_for()
    finally:
        page.evaluate("document.body.style.paddingBottom = ''")
        page.keyboard.press("Escape")


def test_the_page_works_again_after_an_internal_error(page):
    page.fill("#prompt textarea", "broken")
    refused(page, "Internal error. The server log has the details.")
    with following(page, "toys"):
        pass
    assert states(page) == ["done", "done", "failed"]


def test_closing_the_page_stops_the_run(server, browser):
    address, gate, log = server
    gate.touch()
    before = log.read_text().count("stopped")
    with visiting(browser) as page:
        page.goto(address)
        ready(page)
        page.fill("#prompt textarea", "forever")
        page.click("#run")
        page.wait_for_selector("#live .token")
        page.close()
        wait(lambda: log.read_text().count("stopped") == before + 1)


def test_stop_affects_only_the_visitors_own_runs(server, browser):
    address, gate, _ = server
    gate.touch()
    with opened(browser, address) as one, opened(browser, address) as two:
        for page in (one, two):
            ready(page)
        with following(two, "forever"):
            with following(one, "forever"):
                one.wait_for_selector("#live .token")
                two.wait_for_selector("#live .token")
                one.click("#stop")
            before = two.locator("#live .token").count()
            two.wait_for_function(f"document.querySelectorAll('#live .token').length > {before}")
            two.click("#stop")
        assert states(one) == states(two) == ["stopped"] * 3


def test_cards_can_be_added_and_removed_during_a_run(page):
    with following(page, "forever"):
        page.wait_for_selector(WRITTEN)
        page.click("#add")
        page.wait_for_selector("#live .column >> nth=3")
        before = page.locator("#live .token").count()
        page.wait_for_function(f"document.querySelectorAll('#live .token').length > {before}")
        page.click("#stop")
    page.wait_for_selector("#stop[disabled]")
    remove_card(page, 3)
    page.wait_for_selector("#live .column >> nth=3", state="detached")


def tree_scroll(page):
    return page.locator("#tree-view .box").evaluate("box => [box.scrollLeft, box.scrollTop]")


def tool_boxes(page):
    """Where the buttons are, relative to the view: the page may scroll."""
    return page.locator("#tree-view .tools button").evaluate_all(
        """buttons => buttons.map((button) => {
            const own = button.getBoundingClientRect();
            const view = button.closest('.trees').getBoundingClientRect();
            return [own.left - view.left, own.top - view.top, own.width];
        })"""
    )


# How many attributes of the drawn nodes change when a tree is scrolled a little.
REDRAWN = """async box => {
    let changed = 0;
    const observer = new MutationObserver((records) => (changed += records.length));
    observer.observe(box.querySelector('.nodes'), { attributes: true, subtree: true });
    for (let frame = 0; frame < 20; frame++) {
        box.scrollLeft += 40;
        await new Promise(requestAnimationFrame);
    }
    await new Promise(requestAnimationFrame);
    observer.disconnect();
    return changed;
}"""


def test_the_tree_follows_the_cursor_and_stays_where_it_is_at_the_end(page, turns):
    tab(page, "Tree")
    box = page.locator("#tree-view .box")
    with following(page, "wide"):
        box.locator("[role=treeitem]").first.wait_for()
        wait(lambda: box.evaluate("box => box.scrollLeft + box.clientWidth >= box.scrollWidth - 8"))
        turns.write_text(".")
    page.wait_for_timeout(500)
    assert tree_scroll(page)[0] > 1000
    column(page, 1).locator(".token").nth(2).click()
    page.keyboard.press("Escape")
    node = box.locator(".pinned")
    node.wait_for()
    inside, outside = box_of(node), box_of(box)
    assert outside["x"] <= inside["x"] <= outside["x"] + outside["width"] - inside["width"]
    assert outside["y"] <= inside["y"] <= outside["y"] + outside["height"] - inside["height"]


def test_the_tree_is_fitted_again_when_pruned_branches_are_hidden(page):
    tab(page, "Tree")
    with following(page, "wide"):
        pass
    tools = page.locator("#tree-view .tools")
    percentage = tools.get_by_role("button", name="Original size")
    percentage.wait_for()
    before = tool_boxes(page)
    tools.get_by_role("button", name="Fit").click()
    whole = int(percentage.inner_text().split()[0])
    tools.get_by_role("button", name="pruned").click()
    assert whole < int(percentage.inner_text().split()[0]) <= 100
    assert tool_boxes(page) == before  # no button moved
    tools.get_by_role("button", name="pruned").click()
    assert int(percentage.inner_text().split()[0]) == whole
    percentage.click()
    assert tools.get_by_role("button", name="Fit").get_attribute("aria-pressed") == "false"


def test_scrolling_a_large_tree_draws_only_what_becomes_visible(page):
    tab(page, "Tree")
    with following(page, "wide"):
        pass
    box = page.locator("#tree-view .box")
    box.locator("[role=treeitem]").first.wait_for()
    box.evaluate("box => box.scrollTo(0, 0)")
    page.wait_for_timeout(500)
    assert box.evaluate(REDRAWN) == 0
    assert box.locator("[role=treeitem]").count() < 600  # of 1281
