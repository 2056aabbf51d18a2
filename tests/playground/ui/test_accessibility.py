"""Accessibility: axe's rules in every state of the page, wide and narrow, light and dark; the size
of targets; marks that do not depend on colour; a whole session by keyboard.

Screenshots of all states are written to the folder PLAYGROUND_SCREENSHOTS, if it is set.
"""

import os
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.playground.ui.browsing import (
    cards,
    column,
    editing,
    fill_preset,
    length,
    opened,
    over,
    ready,
    refused,
    running,
    text_of,
    wait,
)

WIDTHS = {"wide": {"width": 1400, "height": 1000}, "phone": {"width": 390, "height": 844}}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# The rules that depend on appearance and layout.
LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"]

# Violations that cannot be fixed here: the rule, and where.
EXCUSED = {
    # A click on the head of Gradio's message folds it, and the head contains the close button.
    ("nested-interactive", ".toast-header"),
    # The colours of the code are darkened by a filter, which axe ignores; measured below.
    ("color-contrast", ".cm-line"),
}


@pytest.fixture(scope="module")
def folder():
    """The folder of screenshots, or None: each takes a second."""
    if not (folder := os.environ.get("PLAYGROUND_SCREENSHOTS")):
        return None
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return place


def preset(page, title, tokens):
    """Fill the form with an example, and run it shorter."""
    fill_preset(page, title)
    length(page, tokens)


def tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def drawn(page, figure):
    """Wait until a figure is drawn."""
    page.wait_for_selector(f"#figure-{figure} .js-plotly-plot .main-svg >> nth=0", timeout=60_000)


# All states of the page, with three short runs. Large ones come last: axe examines hidden parts
# too.


def states(page):
    """Bring the page into each state; yields its name."""
    yield "empty"
    yield from _form_states(page)
    yield from _run_states(page)
    yield from _tab_states(page)
    yield from _figure_states(page)


def _form_states(page):
    page.click("#shared > button")
    page.locator("#shared-repetition_penalty").wait_for()
    yield "shared settings"
    page.click("#shared > button")
    with editing(page, 2) as card:
        page.click(f"{card}-editor summary")
        page.locator(f"{card}-top_h").wait_for()
        yield "settings"
    prompt = page.input_value("#prompt textarea")
    page.fill("#prompt textarea", "")
    refused(page, "the prompt is empty")
    yield "error"
    page.fill("#prompt textarea", prompt)
    ready(page)


def _run_states(page):
    length(page, 12)
    page.click("#step")
    page.wait_for_selector("#live .column[data-state=paused] >> nth=2")
    page.wait_for_selector("#stop:enabled")
    yield "paused"
    page.click("#stop")
    ready(page)
    with running(page):
        pass
    tab(page, "Step")
    page.wait_for_selector("#step-view .whole")
    yield "step"
    column(page, 2).locator(".token").nth(3).click()
    page.locator("#live .candidates").wait_for(state="visible")
    page.wait_for_selector("#step-view .stages")
    yield "candidates"
    page.locator("#live .candidates .fork").nth(1).click()
    page.wait_for_selector("#live .column[data-state=done] >> nth=3")
    ready(page)
    yield "fork"
    column(page, 0).locator(".edit").click()
    page.locator("#live .editor textarea").wait_for()
    yield "edit"
    page.keyboard.press("Escape")


def _tab_states(page):
    tab(page, "Tree")
    page.locator("#tree-view .nodes g").nth(2).focus()
    page.wait_for_selector("#tree-view .card:not([hidden])")
    yield "tree"
    tab(page, "Watermark")
    page.wait_for_selector("#detected .tok >> nth=5")
    drawn(page, "watermark_length")
    yield "watermark"
    tab(page, "Explain")
    page.get_by_role("button", name="How strategies weaken a watermark").click()
    page.locator("#weakening td").first.wait_for()
    yield "explain"
    tab(page, "Compare")
    tab(page, "Export")
    page.wait_for_selector("#code .cm-line >> nth=5")
    page.click("#share .more")
    page.get_by_role("button", name="Generation configs").click()
    page.wait_for_selector("#changes td")
    yield "export"


def _figure_states(page):
    tab(page, "Charts")
    for figure in ("probability", "rank", "entropy", "varentropy", "cumulative", "divergence"):
        drawn(page, figure)
    page.locator("#table [role=gridcell]").first.wait_for()
    page.click("#score")
    drawn(page, "cross_likelihood")
    yield "across"
    preset(page, "Contrastive search avoids loops", 8)
    wait(lambda: cards(page)[-1]["strategy"] == "contrastive_search")
    ready(page)
    with running(page):
        pass
    drawn(page, "contrastive_candidates")
    yield "why"


# The checks of each state

SMALL = """() => [...document.querySelectorAll(
    'button, input, select, textarea, a[href], [role=option], [role=tab], [role=treeitem]'
)].filter((node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((node) => !node.closest('[aria-hidden=true], .visually-hidden, .modebar'))
  .map((node) => (node.matches('[type=radio], [type=checkbox]') && node.closest('label')) || node)
  .map((node) => (node.matches('.wrap-inner input') && node.closest('.wrap')) || node)
  .map((node) => [node, node.getBoundingClientRect()])
  .filter(([node, { width, height }]) => width && height && (
      // A token is part of a sentence, and a candidate's whole row is the button.
      height < 23.5 || (width < 23.5 && !node.matches('.token, .fork'))))
  .map(([node, { width, height }]) =>
      `${node.outerHTML.slice(0, 120)}: ${Math.round(width)} x ${Math.round(height)}`)
"""


def findings(page, rules):
    """The violations that axe finds, apart from excused ones."""
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    violations = page.evaluate(
        "options => axe.run(options).then(result => result.violations)", options
    )
    for violation in violations:
        if violation["impact"] not in ("serious", "critical"):
            continue
        for node in violation["nodes"]:
            target = str(node["target"])
            if not any(violation["id"] == rule and at in target for rule, at in EXCUSED):
                yield f"{violation['id']} {target} {node['failureSummary']}"


def calm(page):
    """Wait for the end of animations: during a fade the contrast is lower."""
    page.wait_for_function(
        """() => !document.querySelector('#live del') && document.getAnimations().every(
            (each) => each.playState !== 'running' || each.effect.target.matches('.timer, .timer *')
                || each.effect.getComputedTiming().iterations === Infinity)"""
    )


# Colours depend on the theme and layout on the width: two walks cover both.
@pytest.mark.parametrize(
    ("theme", "width", "rules"), [("light", "wide", RULES), ("dark", "phone", LOOKS)]
)
def test_all_states_pass_axe_and_have_large_targets(browser, address, folder, theme, width, rules):
    wrong = []
    size = WIDTHS[width]
    touch = {"has_touch": width == "phone"}
    with opened(browser, address, f"?__theme={theme}", viewport=size, **touch) as page:
        ready(page)
        page.evaluate(AXE_SCRIPT)
        for state in states(page):
            calm(page)
            if folder:
                whole = state not in ("candidates", "strategies", "tree", "error")
                page.screenshot(path=folder / f"{state} {theme} {width}.png", full_page=whole)
            wrong += [f"{state}: {words}" for words in findings(page, rules)]
            wrong += [f"{state}: small: {words}" for words in page.evaluate(SMALL)]
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                wrong.append(f"{state}: the document is wider than the screen")
    assert wrong == [], "\n".join(wrong)


# Colours and marks

CONTRAST = """({ places, tints }) => {
    const pixel = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const mixed = (...colours) => {
        pixel.clearRect(0, 0, 1, 1);
        for (const colour of colours) {
            pixel.fillStyle = colour;
            pixel.fillRect(0, 0, 1, 1);
        }
        return [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (colour) => {
        const [r, g, b] = colour.map((v) => v / 255).map((v) =>
            v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (node) => {
        const grounds = [];
        for (let at = node; at; at = at.parentElement) {
            grounds.unshift(getComputedStyle(at).backgroundColor);
        }
        const { color, filter } = getComputedStyle(node);
        const dimmed = Number(/brightness\\(([\\d.]+)\\)/.exec(filter)?.[1] ?? 1);
        const ground = light(mixed(...grounds));
        const ink = light(mixed(...grounds, color).map((v) => v * dimmed));
        return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    };
    return [...document.querySelectorAll(places)].flatMap((node) =>
        (tints ?? [null]).map((tint) => {
            if (tint) node.style.setProperty('--tint', tint);
            return [ratio(node), `${node.className} ${tint} ${node.textContent}`];
        }));
}"""


def faintest(page, places, tints=None):
    """The lowest contrast of some texts with their background, for each tint."""
    ratios = page.evaluate(CONTRAST, {"places": places, "tints": tints})
    assert ratios, f"nothing is at {places}"
    return min(ratios)


def forked(page):
    """A run and a fork of it: all kinds of tokens."""
    length(page, 6)
    with running(page):
        pass
    column(page, 2).locator(".token").nth(3).click()
    page.locator("#live .candidates .fork").nth(1).click()
    page.wait_for_selector("#live .column[data-state=done] >> nth=3")
    ready(page)


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(browser, address, request):
    """The page in a theme, with all kinds of tokens."""
    with opened(browser, address, f"?__theme={request.param}", lasting=True) as page:
        ready(page)
        assert page.evaluate("document.body.matches('.dark')") == (request.param == "dark")
        forked(page)
        page.keyboard.press("Escape")
        yield page


def test_tokens_have_contrast_on_all_tints(themed):
    page = themed
    for channel in page.locator("#live-background option").evaluate_all(
        "all => all.map(option => option.value)"
    ):
        page.select_option("#live-background", channel)
        marks = page.locator("#live .channel").first.locator(".ramp i, .sample[style]")
        tints = marks.evaluate_all("all => all.map(n => n.style.getPropertyValue('--tint'))")
        assert bool(tints) == (channel != "none")
        for places in (".token:not(.inherited) .ink", ".inherited .ink", ".given .ink"):
            ratio, which = faintest(page, f"#live {places}", tints or None)
            assert ratio >= 4.5, f"{ratio:.2f} {channel} {which}"
        words = ".legend :is(.about, .ends, .sample, label), #live .column :is(h3, .settings)"
        ratio, which = faintest(page, f"#live {words}")
        assert ratio >= 4.5, f"{ratio:.2f} {channel} {which}"
    ratio, which = faintest(page, "#live button:disabled, #stop")
    assert ratio >= 3, f"{ratio:.2f} {which}"


def test_the_code_has_contrast(themed):
    tab(themed, "Export")
    # Code is coloured some time after it appears.
    themed.wait_for_selector("#code .cm-line span >> nth=20")
    ratio, which = faintest(themed, "#code .cm-line span")
    assert ratio >= 4.5, f"{ratio:.2f} {which}"


def test_marks_differ_without_colour(themed):
    page = themed
    for channel in ("probability", "rank", "entropy", "surprisal", "green", "draft"):
        page.select_option("#live-underline", channel)
        samples = page.locator("#live .channel").nth(1).locator(".sample")
        styles = samples.evaluate_all(
            """all => all.map((sample) => {
                const { textDecorationLine, textDecorationStyle } = getComputedStyle(sample);
                return textDecorationLine === 'none' ? 'none' : textDecorationStyle;
            })"""
        )
        assert len(styles) == len(set(styles)) >= 2, (channel, styles)


def test_reduced_motion_switches_animations_off(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 12)
        page.evaluate(
            """() => {
                globalThis.motions = 0;
                const { animate } = Element.prototype;
                Element.prototype.animate = function (...how) {
                    globalThis.motions += 1;
                    return animate.apply(this, how);
                };
            }"""
        )
        for motion in ("reduce", "no-preference"):
            page.emulate_media(reduced_motion=motion)
            page.evaluate("globalThis.motions = 0")
            with running(page):
                pass
            assert (page.evaluate("motions") == 0) == (motion == "reduce")


# By keyboard

# Whether the focus is visible once it has settled: a ring on the element, or on one around it.
RING = """async () => {
    const complaint = () => {
        const at = document.activeElement;
        if (!at || at === document.body) return 'the focus is lost';
        const marks = [at, at.closest('.wrap'), at.closest('label'), ...at.children];
        const style = (node) => [getComputedStyle(node), getComputedStyle(node, '::after')];
        const styles = marks.filter(Boolean).flatMap(style);
        const seen = styles.some((one) => parseFloat(one.strokeWidth) >= 3
            || (one.outlineStyle !== 'none' && parseFloat(one.outlineWidth) >= 2));
        return seen ? '' : 'no ring around ' + at.outerHTML.slice(0, 160);
    };
    const end = performance.now() + 3000;
    while (complaint() && performance.now() < end) await new Promise((go) => setTimeout(go, 20));
    return complaint();
}"""

# Counts the keys after which the focus is lost.
LOSSES = """() => {
    globalThis.losses = 0;
    const look = () => { globalThis.losses += document.activeElement === document.body; };
    addEventListener('keydown', () => setTimeout(look), true);
}"""


def press(page, *keys):
    """Press keys; after each the focus must be visible."""
    for key in keys:
        before = page.evaluate("document.activeElement.outerHTML.slice(0, 160)")
        page.keyboard.press(key)
        ring = page.evaluate(RING)
        assert ring == "", f"{ring} after {key} at {before}"


def at(page, what):
    return page.evaluate(
        "what => [document.activeElement.matches(what), document.activeElement.textContent.trim()]",
        what,
    )


def walk_to(page, what, words="", key="Tab"):
    """Press Tab until an element has the focus."""
    for _ in range(120):
        press(page, key)
        there, text = at(page, what)
        if there and words in text:
            return
    raise AssertionError(f"{key} does not lead to {what} {words}")


def back_to(page, what, words=""):
    walk_to(page, what, words, key="Shift+Tab")


def write(page, words):
    page.keyboard.press("Control+A")
    page.keyboard.type(words)


def test_a_run_is_set_up_stepped_and_played_by_keyboard(browser, address):
    with opened(browser, address) as page:
        ready(page)
        walk_to(page, "#presets button", "Certain and uncertain steps")
        with over(page):
            press(page, "Enter")
        assert len(cards(page)) == 2
        _choose_a_strategy(page)
        back_to(page, "#shared-max_new_tokens input[type=number]")
        write(page, "5")
        back_to(page, "#prompt textarea")
        write(page, "The sky is")
        walk_to(page, "#step")
        press(page, "Enter")
        _step_and_play(page)
        assert text_of(page, 0)
        back_to(page, "#live-background")
        assert page.input_value("#live-background") == "entropy"  # the example's own
        press(page, "ArrowDown")
        assert page.input_value("#live-background") == "surprisal"


def _choose_a_strategy(page):
    walk_to(page, ".card-open")
    page.evaluate(LOSSES)
    press(page, "Enter")
    page.locator(".card-editor").wait_for()
    while cards(page)[0]["strategy"] != "beam_search":
        press(page, "b")  # the next strategy that begins with it
    page.locator(".card-editor").get_by_text("num_beams", exact=True).wait_for()
    press(page, "Escape")
    assert page.evaluate("losses") == 0


def _step_and_play(page):
    page.wait_for_selector("#live .column[data-state=paused] >> nth=1")
    wait(lambda: at(page, "#live .transport")[0])
    for tokens in (1, 2):
        press(page, "ArrowRight")
        wait(
            lambda count=tokens: (
                page.locator("#live .column").nth(1).locator(".token").count() >= count
            )
        )
    press(page, "Space")
    page.wait_for_selector("#live .column[data-state=done] >> nth=1")
    ready(page)
    press(page, "Home")
    wait(lambda: "step 1 of 5" in page.inner_text("#live .transport"))
    press(page, "ArrowRight")
    wait(lambda: "step 2 of 5" in page.inner_text("#live .transport"))
    press(page, "End")
    wait(lambda: "step 5 of 5" in page.inner_text("#live .transport"))
    wait(lambda: at(page, "#live .transport")[0])


def test_a_run_is_stopped_by_keyboard_and_the_focus_stays_visible(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 120)
        walk_to(page, "#run")
        press(page, "Enter")
        wait(lambda: at(page, "#live .transport")[0])
        page.wait_for_selector("#stop:not([disabled])")
        back_to(page, "#stop")
        press(page, "Enter")
        page.wait_for_selector("#live .column[data-state=stopped]")
        ready(page)
        press(page, "Shift")
        wait(lambda: at(page, "#live .transport")[0])


def test_a_text_is_forked_and_edited_by_keyboard(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 5)
        with running(page):
            pass
        walk_to(page, "#live .token")
        press(page, "ArrowRight", "End", "Home", "ArrowDown", "Enter")
        wait(lambda: at(page, "#live .fork")[0])
        press(page, "ArrowDown", "Escape")
        wait(lambda: at(page, "#live .token")[0])
        press(page, "Escape")
        page.locator("#live .candidates").wait_for(state="hidden")
        press(page, "Enter", "ArrowDown", "Enter")
        page.wait_for_selector("#live .column[data-state=done] >> nth=3")
        ready(page)
        press(page, "Shift")
        wait(lambda: at(page, "#live .column:has(.badge)")[0])
        walk_to(page, "#live .edit")
        press(page, "Enter")
        wait(lambda: at(page, "#live .editor textarea")[0])
        press(page, "Escape")
        wait(lambda: at(page, "#live .edit")[0])
        press(page, "Enter", "End")
        page.keyboard.type(" And")
        walk_to(page, "#live .editor button", "Continue")
        press(page, "Enter")
        page.wait_for_selector("#live .column[data-state=done] >> nth=4")
        ready(page)
        press(page, "Shift")
        wait(lambda: at(page, "#live .column:has(.badge)")[0])


def test_the_tabs_are_used_by_keyboard(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 5)
        with running(page):
            pass
        walk_to(page, "#dock [role=tab]", "Step")
        press(page, "Enter")
        walk_to(page, "#step-view .choice button", "sample")
        press(page, "Enter")
        walk_to(page, "#step-view .walk button")
        press(page, "Enter")
        page.locator("#step-view .headline", has_text="Token 4").wait_for()
        walk_to(page, "#step-view .scale button", "log")
        press(page, "Space")
        page.locator("#step-view .quiet", has_text="Logarithmic").wait_for()
        back_to(page, "[role=tab]", "Tree")
        press(page, "Enter")
        walk_to(page, "#tree-view .nodes g")
        press(page, "ArrowRight", "ArrowDown", "Enter", "Home", "End", "Escape")
        back_to(page, "[role=tab]", "Export")
        press(page, "Enter")
        walk_to(page, "#save-traces")
        with page.expect_download() as saved:
            press(page, "Enter")
        assert saved.value.suggested_filename == "traces.json"


def test_cards_are_moved_duplicated_and_removed_by_keyboard(browser, address):
    with opened(browser, address) as page:
        ready(page)

        def names():
            return [card["strategy"] for card in cards(page)]

        walk_to(page, ".card-open")
        press(page, "Enter")
        walk_to(page, "#card-0-right")
        press(page, "Enter")
        assert names() == ["beam_search", "greedy", "sample"]
        walk_to(page, "#card-0-duplicate")
        press(page, "Enter")
        assert names() == ["beam_search", "greedy", "greedy", "sample"]
        walk_to(page, "#card-0-remove")
        press(page, "Enter")
        assert names() == ["beam_search", "greedy", "sample"]
        press(page, "Shift")
