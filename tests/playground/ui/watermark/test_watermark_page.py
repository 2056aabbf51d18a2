"""Detect and Explain on the Watermark page, compared with the engine."""

import json

import pytest
import torch
from gradio_client import Client
from transformers import BayesianDetectorConfig, BayesianDetectorModel

from engine.watermark.bayesian import bayesian
from engine.watermark.config import KEYS
from engine.watermark.detector import detect, scan
from playground.ui.compare.cards import Card, choice
from playground.ui.compare.presets import PRESETS
from playground.ui.watermark.detect import _Latest
from playground.watermarks.green_list_step import explain
from playground.watermarks.human_texts import passages
from tests.playground.ui.browsing import (
    WIDE,
    column,
    fill_preset,
    length,
    opened,
    over,
    ready,
    running,
    tab,
    wait,
)

NAMED = {preset.title: preset for preset in PRESETS}
GREEN, TOURNAMENT = "A watermark you cannot see", "SynthID: tournament sampling"
EVIL = '<img src=x onerror="window.evil = 1">${1}{{value}}<script>window.evil = 2</script> & co. '


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("watermark")


def traces_of(lab, title, columns=2, tokens=None):
    preset = NAMED[title]
    runs = [choice(Card(*card), lab) for card in preset.cards[:columns]]
    return lab.compare(
        preset.prompt, runs, max_new_tokens=tokens or preset.max_new_tokens, seed=preset.seed
    )


@pytest.fixture(scope="module")
def traces(lab):
    return traces_of(lab, GREEN)


@pytest.fixture(scope="module")
def ran(browser, address):
    """The page after the watermark example was run; the Watermark tab is open."""
    with opened(browser, address, lasting=True) as page:
        run(page, GREEN)
        yield page


@pytest.fixture
def page(ran):
    """The same, with the first column and its settings chosen."""
    key = "#detect-hashing_key input"
    look_at(ran, "a column")
    choose(ran, "detect-column", "1. sample")
    if ran.input_value(key) != "15485863":  # set by an earlier test
        ran.click("#detect-own")
        wait(lambda: ran.input_value(key) == "15485863")
    verdict(ran, "marked")
    return ran


def run(page, title, tokens=None):
    tab(page, "Compare")
    ready(page)
    if tokens:
        fill_preset(page, title)
        length(page, tokens)
        with running(page):
            pass
    else:
        with over(page):
            page.get_by_role("button", name=title).click()
    tab(page, "Watermark")
    verdict(page, "marked")


def verdict(page, words):
    """Wait for a verdict."""
    page.wait_for_selector(f"#detected .verdict b:text-is('{words}')", timeout=60_000)


def look_at(page, where):
    page.locator("#detect-where").get_by_label(where).check()


def choose(page, id, name):
    """Choose an option of a menu."""
    if page.input_value(f"#{id} input") == name:
        return
    page.click(f"#{id} input")
    page.get_by_role("option", name=name).click()


def more_settings(page):
    """Open the settings below scheme and key."""
    if not page.locator("#detect-z_threshold").is_visible():
        page.get_by_role("button", name="More detector settings").click()
        page.locator("#detect-z_threshold").wait_for()


def paste(page, text):
    look_at(page, "pasted text")
    page.fill("#detect-pasted textarea", text)
    page.locator("#detected .name", has_text="Pasted text").wait_for()


def shown(page):
    """The tables, by row and column title."""
    rows = page.locator("#detected table").evaluate_all(
        """tables => tables.flatMap((table) => {
            const [head, ...rows] = [...table.rows].map(
                (row) => [...row.cells].map((cell) => cell.textContent));
            return rows.map(([name, ...cells]) => [name, Object.fromEntries(
                cells.map((cell, at) => [head[at + 1], cell]))]);
        })"""
    )
    return dict(rows)


def counted(score):
    """A score as the table shows it."""
    return {
        "tokens scored": str(score.tokens_scored),
        "green": str(score.green_tokens),
        "green, share": f"{score.green_fraction:.1%}",
        "z-score": f"{score.z_score:.2f}",
        "p, normal approximation": f"{score.p_value:.3g}",
        "p, exact": f"{score.exact_p:.3g}",
    }


def column_of(page, way):
    return {name: cells[way] for name, cells in shown(page).items() if way in cells}


def test_all_numbers_equal_the_engines(page, lab, traces, address):
    found = detect(lab.model, traces[0].sequences[0].token_ids, greenlist_ratio=0.25)
    assert column_of(page, "all n-grams") == counted(found.with_repeats)
    assert column_of(page, "each n-gram once") == counted(found.without_repeats)
    assert column_of(page, "independent draws") == counted(found.independent)
    assert column_of(page, "re-tokenized") == counted(found.round_trip.score)
    assert f"z = {found.z_score:.2f}" in page.inner_text("#detected .verdict")
    assert f"z {scan(found).best.z_score:.2f}" in page.inner_text("#detected .notes")
    answer = Client(address, verbose=False).predict(traces[0].text, api_name="/detect")
    assert column_of(page, "re-tokenized")["z-score"] == f"{answer['z_score']:.2f}"


def test_each_token_has_the_colour_of_its_verdict(page, lab, traces):
    found = detect(lab.model, traces[0].sequences[0].token_ids, greenlist_ratio=0.25)
    tokens = page.locator("#detected .tok").evaluate_all(
        "all => all.map((one) => [one.textContent, one.classList[1]])"
    )
    assert tokens == [[token.text, token.verdict] for token in found.tokens]
    lines = page.evaluate(
        """() => ['green', 'red', 'unscored'].map((kind) => {
            const { textDecorationLine, textDecorationStyle } =
                getComputedStyle(document.querySelector(`#detected .tok.${kind}`));
            return textDecorationLine === 'none' ? 'none' : textDecorationStyle;
        })"""
    )
    assert len(set(lines)) == 3, "colour is the only difference"


def test_a_text_without_a_watermark_is_not_marked(page, lab, traces):
    choose(page, "detect-column", "2. sample")
    verdict(page, "not marked")
    found = detect(lab.model, traces[1].sequences[0].token_ids, greenlist_ratio=0.25)
    assert column_of(page, "all n-grams") == counted(found.with_repeats)
    assert "generated without a watermark" in page.inner_text("#detected .notes")


def test_only_the_right_key_detects_the_watermark(page, lab, traces):
    page.fill("#detect-hashing_key input", "15485864")
    verdict(page, "not marked")
    wrong = detect(lab.model, traces[0].sequences[0].token_ids, hashing_key=15485864)
    wait(lambda: column_of(page, "all n-grams") == counted(wrong.with_repeats))
    page.click("#detect-own")
    verdict(page, "marked")
    page.click("#detect-other-key")
    verdict(page, "not marked")


def test_the_verdict_says_for_which_key_and_scheme_it_holds(page):
    about = page.locator("#detected .verdict .about")
    assert about.inner_text() == "for the key 15485863 and the scheme lefthash"
    page.fill("#detect-hashing_key input", "7")
    wait(lambda: about.inner_text() == "for the key 7 and the scheme lefthash")
    page.click("#detect-other-scheme")
    wait(lambda: about.inner_text() == "for the key 7 and the scheme selfhash")


@pytest.mark.parametrize("kind", ["click", "input"])
def test_the_verdict_is_marked_as_out_of_date_while_detecting(page, kind):
    held = []
    height = page.locator("#detected").bounding_box()["height"]
    page.route("**/queue/join*", lambda route: held.append(route))  # no answer until they continue
    try:
        if kind == "click":
            page.click("#detect-other-key")
        else:
            page.fill("#detect-hashing_key input", "15485864")
        page.wait_for_selector("#detected [aria-busy=true] .verdict b:text-is('marked')")
        assert page.inner_text("#detected .working") == "Detecting …"
        assert page.locator("#detected .working").get_attribute("role") == "status"
        assert page.locator("#detected").bounding_box()["height"] == height
    finally:
        for route in held:
            route.continue_()
        held.clear()
        page.unroute_all(behavior="ignoreErrors")
    page.wait_for_selector("#detected [aria-busy=false] .verdict b:text-is('not marked')")
    assert page.locator("#detected .working:empty").count() == 1


def test_pasted_text_is_kept_when_the_page_is_opened_again(page):
    paste(page, "The sea is wide and blue. " * 9)
    tab(page, "Compare")
    tab(page, "Watermark")
    page.wait_for_timeout(500)
    assert page.locator("#detect-where").get_by_label("pasted text").is_checked()
    page.fill("#detect-pasted textarea", "")
    page.locator("#detected .verdict.empty").wait_for()
    tab(page, "Compare")
    tab(page, "Watermark")
    verdict(page, "marked")
    assert page.locator("#detect-where").get_by_label("a column").is_checked()


def test_another_scheme_shows_its_settings_and_detects_nothing(page, lab, traces):
    page.click("#detect-other-scheme")
    verdict(page, "not marked")
    page.locator("#detected .notes", has_text="has a lefthash watermark").wait_for()
    page.click("#detect-other-scheme")
    page.locator("#detect-keys").wait_for()
    page.wait_for_selector("#figure-synthid_g_values .main-svg >> nth=0")
    assert not page.locator("#detect-hashing_key").is_visible()
    page.click("#detect-own")
    page.locator("#detect-hashing_key").wait_for()
    verdict(page, "marked")


def test_another_tokenizer_detects_nothing(page, traces):
    choose(page, "detect-tokenizer", "stories15m")
    try:
        wait(lambda: "re-tokenized" not in shown(page).get("z-score", {}), seconds=90)
        verdict(page, "not marked")
    finally:
        choose(page, "detect-tokenizer", "smollm2")
        verdict(page, "marked")


def test_ignore_repeated_and_the_threshold_take_effect_at_once(page):
    more_settings(page)
    used = page.locator("#detected thead .used")
    assert used.inner_text() == "all n-grams"
    page.get_by_label("ignore_repeated").check()
    wait(lambda: used.inner_text() == "each n-gram once")
    page.get_by_label("ignore_repeated").uncheck()
    wait(lambda: used.inner_text() == "all n-grams")
    page.fill("#detect-z_threshold input[type=number]", "9")
    page.keyboard.press("Tab")
    verdict(page, "not marked")
    page.fill("#detect-z_threshold input[type=number]", "3")
    page.keyboard.press("Tab")
    verdict(page, "marked")


@pytest.mark.parametrize("key", ["1" + "0" * 20, "half a key", "1.5"])
def test_an_invalid_key_shows_a_message_and_changes_nothing(page, key):
    before = page.locator("#detected .tok").count()
    page.fill("#detect-hashing_key input", key)
    page.locator("#detected .verdict.error", has_text="hashing_key is").wait_for()
    assert page.locator("#detected .tok").count() == before
    assert page.input_value("#detect-hashing_key input") == key


def test_pasted_html_is_shown_as_text(page):
    paste(page, EVIL * 3)
    wait(lambda: page.locator("#detected .text").text_content() == EVIL * 3)
    assert page.evaluate("window.evil") is None
    assert page.locator("#detected img, #detected script").count() == 0


def test_a_short_text_has_no_verdict(page):
    paste(page, "Hi.")
    verdict(page, "too short to say")
    page.fill("#detect-pasted textarea", "")
    page.locator("#detected .verdict.empty", has_text="Paste a text").wait_for()
    assert page.locator("#detected .tok").count() == 0


def test_a_text_file_is_read_and_a_binary_file_rejected(page, folder, lab):
    human = folder / "human.txt"
    human.write_text(passages()[0].text, encoding="utf-8")
    garbage = folder / "garbage.txt"
    garbage.write_bytes(bytes(range(256)) * 20)
    look_at(page, "a file")
    page.locator("#detect-file").wait_for()
    with page.expect_file_chooser() as chooser:
        page.click("#detect-file")
    chooser.value.set_files(human)
    page.locator("#detected .name", has_text="human.txt").wait_for()
    found = detect(lab.model, human.read_text())
    wait(lambda: column_of(page, "all n-grams") == counted(found.with_repeats))
    with page.expect_file_chooser() as chooser:
        page.click("#detect-file")
    chooser.value.set_files(garbage)
    page.locator("#detected .verdict.error", has_text="garbage.txt is not a UTF-8").wait_for()


def test_a_pinned_step_is_explained(page, lab, traces, folder):
    tab(page, "Explain")
    page.locator("#explain-words", has_text="No token is pinned").wait_for()
    tab(page, "Compare")
    column(page, 0).locator(".token").nth(6).click()
    wait(lambda: column(page, 0).locator(".token[aria-current]").count() == 1)
    page.wait_for_timeout(500)  # the position is reported a quarter of a second later
    tab(page, "Watermark")
    page.locator("#explain-words", has_text="Token 7").wait_for()
    step = explain(lab.model, traces[0], 6)
    words = page.inner_text("#explain-words")
    assert f"{step.green_before:.1%} before the bias and {step.green_after:.1%} after it" in words
    assert f"entropy {step.entropy:.2f} nats" in words
    for figure in ("watermark_bias", "watermark_entropy"):
        page.wait_for_selector(f"#figure-{figure} .main-svg >> nth=0")
    page.keyboard.press("Escape")
    tab(page, "Detect")


@pytest.fixture(scope="module")
def trained(folder):
    """A Bayesian detector's two files, as transformers saves them."""
    model = BayesianDetectorModel(BayesianDetectorConfig(watermarking_depth=len(KEYS)))
    with torch.no_grad():
        model.likelihood_model_watermarked.beta.fill_(1.0)
    model.save_pretrained(folder / "detector")
    return folder / "detector"


def test_synthid_is_detected_with_the_keys_of_its_column(browser, address, lab, trained):
    with opened(browser, address) as page:
        run(page, TOURNAMENT, tokens=40)
        [marked] = traces_of(lab, TOURNAMENT, columns=1, tokens=40)
        found = detect(lab.model, marked.sequences[0].token_ids, scheme="synthid")
        layers, rows = found.layers, shown(page)
        assert rows["weighted mean"]["value"] == f"{layers.weighted_mean:.4f}"
        assert rows["weighted mean"]["threshold"] == f"{layers.weighted_threshold:.4f}"
        assert rows["mean"]["z-score"] == f"{layers.mean_z:.2f}"
        page.wait_for_selector("#figure-synthid_g_values .main-svg >> nth=0")
        keys = page.input_value("#detect-keys input")
        assert json.loads(keys) == marked.settings["watermarking_config"]["keys"]
        about = page.inner_text("#detected .verdict .about")
        assert about == "for the keys 654, 400, 836, … (10 in all) and the scheme synthid"
        more_settings(page)
        with page.expect_file_chooser() as chooser:
            page.click("#detect-upload")
        chooser.value.set_files(trained / "config.json")
        page.locator("#detected .notes", has_text="upload config.json and model").wait_for()
        with page.expect_file_chooser() as chooser:
            page.click("#detect-upload")
        chooser.value.set_files([trained / "config.json", trained / "model.safetensors"])
        found = bayesian(lab.model, marked.sequences[0].token_ids, trained)
        words = (
            f"a probability of {found.probability:.4f} for a watermark, from {found.tokens_scored}"
        )
        page.locator("#detected .notes", has_text=words).wait_for()


def test_an_empty_page_says_what_to_do(browser, address):
    with opened(browser, address) as page:
        ready(page)
        tab(page, "Watermark")
        page.locator("#detected .verdict.empty", has_text="Paste a text").wait_for()
        assert page.locator("#detect-pasted textarea").is_visible()
        names = page.locator("#watermark-tabs [role=tab]").all_inner_texts()
        assert names == ["Detect", "Attack", "Explain", "Calibrate", "Guess"]
        look_at(page, "a column")
        page.locator("#detected .verdict.empty", has_text="Run a comparison").wait_for()
        tab(page, "Explain")
        page.locator("#explain-words", has_text="No column has a green list").wait_for()


def test_only_the_latest_detection_of_a_visitor_counts():
    latest = _Latest()
    first, other, second = (latest.start(visitor) for visitor in ("anna", "ben", "anna"))
    assert not latest.is_current("anna", first)
    assert latest.is_current("anna", second) and latest.is_current("ben", other)


def fits(page, width):
    page.wait_for_selector("#figure-watermark_scan .main-svg >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tab(page, "Explain")
    page.wait_for_selector("#figure-watermark_entropy .main-svg >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tab(page, "Detect")


def test_it_fits_wide_and_small_screens(page):
    fits(page, WIDE["width"])
    try:
        page.set_viewport_size({"width": 390, "height": 900})
        fits(page, 390)
    finally:
        page.set_viewport_size(WIDE)
