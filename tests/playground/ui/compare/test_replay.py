"""Stepping, pinning, forking, editing and replaying runs on the embedded model."""

import pytest

from playground.ui.compare.presets import FIRST
from tests.playground.ui.browsing import (
    column,
    opened,
    over,
    ready,
    running,
    states,
    stored,
    text_of,
    wait,
)

GREEDY, BEAMS, SAMPLE = range(3)


@pytest.fixture(scope="module")
def visited(browser, address):
    """One page for all tests: a comparison takes less time than opening a page."""
    with opened(browser, address) as page:
        ready(page)
        yield page


def filled(page):
    """The page with the form that each test starts with."""
    page.fill("#prompt textarea", FIRST.prompt)
    page.fill("#shared-max_new_tokens input[type=number]", "8")
    page.keyboard.press("Tab")
    return page


def compared(page):
    """The page after a comparison, without focus."""
    with running(filled(page)):
        pass
    page.evaluate("document.activeElement.blur()")
    return page


@pytest.fixture
def page(visited):
    return filled(visited)


@pytest.fixture
def ran(visited):
    return compared(visited)


@pytest.fixture(scope="module")
def read(visited):
    """For tests that only read."""
    return compared(visited)


def tokens(page, index):
    return column(page, index).locator(".token")


def length(page, index):
    return tokens(page, index).count()


def expected(lab, index, tokens=8, **more):
    [trace] = lab.compare(FIRST.prompt, [FIRST.cards[index]], max_new_tokens=tokens, **more)
    return trace


def at(page):
    return stored(page, "cursor")["at"]


def test_step_by_step_advances_the_model_one_token_at_a_time(page, lab):
    with over(page):
        page.click("#step")
        wait(lambda: length(page, GREEDY) == 1)
        page.evaluate("document.activeElement.blur()")
        for count in range(2, 5):
            page.keyboard.press("ArrowRight")
            for index in (GREEDY, SAMPLE):
                wait(lambda index=index, count=count: length(page, index) == count)
        assert states(page)[GREEDY] == "paused"
        page.keyboard.press("ArrowLeft")  # only looks back
        assert at(page) is not None
        page.keyboard.press("Space")
    assert [text_of(page, index) for index in range(3)] == [
        expected(lab, index).text for index in range(3)
    ]


def test_a_run_can_be_paused_stepped_and_stopped(page):
    page.fill("#shared-max_new_tokens input[type=number]", "200")
    page.keyboard.press("Tab")
    with running(page):
        page.wait_for_selector("#live .column[data-state=writing] .token >> nth=1")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Space")
        wait(lambda: states(page)[GREEDY] == "paused")
        before = length(page, GREEDY)
        for _ in range(3):  # one token for each step, and perhaps one that was in progress
            count = length(page, GREEDY)
            page.keyboard.press("ArrowRight")
            wait(lambda count=count: length(page, GREEDY) > count)
        page.click("#stop")
    assert states(page) == ["stopped"] * 3
    assert length(page, GREEDY) <= before + 4


def test_keys_move_through_earlier_states_of_the_text(ran, lab):
    page = ran
    trace = expected(lab, GREEDY)
    page.keyboard.press("Home")
    wait(lambda: text_of(page, GREEDY) == trace.steps[0].text)
    page.keyboard.press("ArrowRight")
    wait(lambda: text_of(page, GREEDY) == trace.steps[0].text + trace.steps[1].text)
    page.keyboard.press("End")
    wait(lambda: text_of(page, GREEDY) == trace.text)
    page.keyboard.press("Home")
    page.keyboard.press("Space")  # replay to the end
    wait(lambda: length(page, GREEDY) == 8)


def test_keys_have_no_effect_while_typing(ran):
    page = ran
    page.click("#prompt textarea")
    page.keyboard.press("End")
    page.keyboard.type(" so")
    page.keyboard.press("Home")
    assert page.input_value("#prompt textarea") == FIRST.prompt + " so"
    assert at(page) is None


def test_clicking_a_token_pins_its_step_in_all_views(ran, lab):
    page = ran
    trace = expected(lab, SAMPLE)
    tokens(page, SAMPLE).nth(3).click()
    assert at(page) == 3
    for index in range(3):  # the columns are painted with the next frame
        page.wait_for_function(
            "index => document.querySelectorAll('#live .column')[index]"
            ".querySelectorAll('.token')[3]?.ariaCurrent",
            arg=index,
        )
    page.keyboard.press("Escape")
    step = trace.steps[3]
    # The view may still show token 4 of another column.
    words = ["Token 4", f"rank {step.rank}", *step.distribution.processors]
    wait(lambda: all(word in page.inner_text("#step-view") for word in words))
    page.get_by_role("tab", name="Charts").click()
    line = "#figure-probability .js-plotly-plot .shapelayer path"
    page.wait_for_selector(line, state="attached")


def test_a_position_that_arrives_after_a_tab_was_opened_is_drawn_there(ran):
    page, held, line = ran, [], "#figure-probability .js-plotly-plot .shapelayer path"

    def hold(route):
        pinned = '"at":' in (route.request.post_data or "")
        held.append(route) if pinned else route.continue_()

    page.route("**/gradio_api/queue/join*", hold)
    tokens(page, SAMPLE).nth(2).click()
    wait(lambda: page.evaluate("true") and held)  # a call lets Playwright handle requests
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Charts").click()
    page.wait_for_selector("#figure-probability .js-plotly-plot")
    held[0].continue_()
    page.wait_for_selector(line, state="attached")
    page.unroute_all()
    page.get_by_role("tab", name="Step").click()


def test_clicking_a_candidate_forks_the_run(ran, lab):
    page = ran
    trace = expected(lab, GREEDY)
    other = next(
        c for c in trace.steps[2].distribution.candidates if c.token.id != trace.steps[2].token.id
    )
    tokens(page, GREEDY).nth(2).click()
    row = page.locator("#live .candidates tr", has=page.locator("button.fork")).nth(1)
    with over(page):
        row.locator("button.fork").click()
    prefix = [trace.steps[0].token.id, trace.steps[1].token.id, other.token.id]
    [fork] = lab.compare(FIRST.prompt, ["greedy"], max_new_tokens=8, prefix=prefix)
    kept = trace.steps[0].text + trace.steps[1].text
    assert page.locator("#live .column").count() == 4
    assert text_of(page, 1) == kept + other.token.text + fork.text  # beside what it left
    assert text_of(page, 0) == trace.text
    assert "forked from greedy at token 3" in column(page, 1).inner_text()
    assert "greedy" in page.inner_text("#live .forks")


def test_typed_text_and_an_edited_text_fork_the_run(ran, lab):
    page = ran
    trace = expected(lab, GREEDY)
    tokens(page, GREEDY).nth(0).click()
    with over(page):
        page.fill("#live .candidates input", " we both sing")
        page.locator("#live .candidates").get_by_role("button", name="Continue", exact=True).click()
    [typed] = lab.compare(FIRST.prompt, ["greedy"], max_new_tokens=8, prefix=" we both sing")
    assert text_of(page, 1) == " we both sing" + typed.text

    column(page, 0).get_by_role("button", name="Edit").click()
    kept = trace.steps[0].text + trace.steps[1].text
    with over(page):
        column(page, 0).locator("textarea").fill(kept + " tiger.")
        page.get_by_role("button", name="Continue from here").click()
    edited = [text_of(page, index) for index in (1, 2)]
    ids = [trace.steps[0].token.id, trace.steps[1].token.id, *lab.token_decoder.ids(" tiger.")]
    [again] = lab.compare(FIRST.prompt, ["greedy"], max_new_tokens=8, prefix=ids)
    assert kept + " tiger." + again.text in edited


def test_forks_can_be_forked_up_to_the_limit(ran):
    page = ran
    for count, index in ((4, 0), (5, 1)):
        tokens(page, index).nth(1).click()
        with over(page):
            page.locator("#live .candidates button.fork").nth(1).click()
        assert page.locator("#live .column").count() == count
    tokens(page, 0).nth(1).click()
    page.locator("#live .candidates button.fork").nth(2).click()
    page.wait_for_selector("#live .status.error >> text=at most 5 columns")
    assert page.locator("#live .column").count() == 5


def test_the_tree_shows_the_pruned_and_returned_beams(read, lab):
    page = read
    trace = expected(lab, BEAMS)
    page.get_by_role("tab", name="Tree").click()
    page.wait_for_selector("#tree-view svg [role=treeitem], #tree-view svg .node")
    text = page.inner_text("#tree-view")
    pruned = sum(step.event == "pruned" for step in trace.steps)
    assert f"{pruned} pruned" in text
    assert f"{len(trace.sequences)} returned" in text


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("entropy", "nats"),
        ("surprisal", "bits"),
        ("green list", "no run here has a watermark"),
        ("draft verdict", "no run here"),
    ],
)
def test_the_legend_explains_the_colours(read, channel, words):
    page = read
    page.locator("#live .legend select").first.select_option(label=channel)
    wait(lambda: words in page.inner_text("#live .legend"))
