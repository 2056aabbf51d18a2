"""Attack, Calibrate and Guess on the Watermark page, compared with the engine."""

import json
import random
import re

import pytest

from engine.errors import PlaygroundError
from engine.models.embedded import CACHE_VARIABLE
from engine.models.loading import EMBEDDED
from engine.watermark import detector as watermark
from playground import Playground
from playground.ui.shared import html as tables
from playground.ui.shared.jobs import Jobs
from playground.ui.watermark.calibrate import rate
from playground.watermarks.attacks.apply import attack, curve
from playground.watermarks.calibrate import CalibrationSpec, calibrate
from tests.playground.ui.browsing import (
    downloaded,
    expect_message,
    opened,
    ready,
    running,
    served,
    tab,
    wait,
)

MODEL = "stories15m"  # fast
MARK = {"bias": 4.0, "greenlist_ratio": 0.25}
PROMPT = "Once upon a time"
LENGTH = 40
SLOW = 120_000  # milliseconds that a busy machine may take


@pytest.fixture(scope="module")
def lab():
    return Playground(MODEL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labs")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder with the user's models, but without calibrations."""
    cache = tmp_path_factory.mktemp("cache")
    for model in EMBEDDED.values():
        home = model()
        cache.joinpath(home.name).symlink_to(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(cache))
        yield cache


@pytest.fixture(scope="module")
def address(cache, folder):
    words = ["app.py", "--port", "{port}", "--model", MODEL, "--calibration-tokens", "60000"]
    with served(words, folder / "log") as address:
        yield address


def lab_tab(page, name):
    tab(page, "Watermark")
    page.get_by_role("tab", name=name).click()


@pytest.fixture(scope="module")
def ran(browser, address):
    """A page with three marked columns."""
    with opened(browser, address, lasting=True) as page:
        page.set_default_timeout(60_000)
        ready(page)
        page.fill("#prompt textarea", PROMPT)
        page.click("#shared button")
        page.fill("#shared-watermarking_config textarea", json.dumps(MARK))
        page.fill("#shared-max_new_tokens input[type=number]", str(LENGTH))
        page.keyboard.press("Tab")
        with running(page):
            pass
        lab_tab(page, "Attack")
        yield page


@pytest.fixture(scope="module")
def ids(lab):
    """The tokens of the first column."""
    [trace] = lab.compare(PROMPT, ["greedy"], max_new_tokens=LENGTH, watermarking_config=MARK)
    return trace.sequences[0].token_ids


@pytest.fixture(scope="module")
def page(browser, address):
    """A page that tests share; each uses its own section."""
    with opened(browser, address, lasting=True) as page:
        page.set_default_timeout(60_000)
        ready(page)
        yield page


def choose(page, name):
    page.click("#attack-name input")
    page.get_by_role("option", name=name).click()


def fill(page, id, value):
    page.fill(f"#{id} input >> nth=0", str(value))
    page.keyboard.press("Tab")


def cells(page, selector):
    rows = page.locator(f"{selector} tbody tr")
    return [rows.nth(at).locator("th, td").all_inner_texts() for at in range(rows.count())]


def progress(page, section, words):
    page.wait_for_selector(f"#{section}-progress >> text={words}", timeout=SLOW)


def idle(page, button):
    page.wait_for_selector(f"{button}:not([disabled])", timeout=SLOW)


# Attack


def test_an_attack_has_the_engines_numbers_for_the_same_seed(ran, lab, ids):
    choose(ran, "Substitute tokens")
    ran.wait_for_selector("#attack-about >> text=Replaces tokens by random ones")
    assert "the probability that each token is replaced" in ran.inner_text("#attack-about")
    fill(ran, "attack-strength", 0.4)
    fill(ran, "attack-seed", 7)
    ran.click("#attack-attack")
    progress(ran, "attack", "After the attack")
    idle(ran, "#attack-attack")
    done = attack(lab, ids, "substitute", 0.4, 7)
    before = watermark.detect(lab.model, ids, **MARK)
    after = watermark.detect(lab.model, done.ids, **MARK)
    assert ran.input_value("#attacked textarea") == done.text
    first, _, last = cells(ran, "#attack-table")
    for row, found in ((first, before), (last, after)):
        assert row[1:5] == [
            f"{found.z_score:.2f}",
            tables.probability(found.exact_p),
            found.verdict,
            str(found.tokens_scored),
        ]
    assert found.reason in ran.inner_text("#attack-progress")


def test_a_curve_has_the_engines_points(ran, lab, ids):
    choose(ran, "Delete tokens")
    ran.wait_for_selector("#attack-about >> text=Deletes tokens")
    fill(ran, "attack-seed", 3)
    fill(ran, "attack-seeds", 2)
    ran.click("#attack-curve")
    progress(ran, "attack", "20 attacks, 2 for each strength")
    ran.wait_for_selector("#attack-curve-plot .js-plotly-plot")
    drawn = ran.evaluate(
        "[...document.querySelector('#attack-curve-plot .js-plotly-plot').data[0].y]"
    )
    strengths = [round(step / 9, 4) for step in range(10)]
    points = curve(lab, ids, "delete", strengths, (3, 4), **MARK)
    assert drawn == pytest.approx([point.after for point in points if point.after is not None])


def test_a_slow_curve_can_be_stopped(ran):
    choose(ran, "Rewrite with the model")
    ran.wait_for_selector("#attack-about >> text=The model generates")
    ran.wait_for_selector("#attack-stop[disabled]")
    ran.click("#attack-curve")
    progress(ran, "attack", "tokens generated")
    ran.click("#attack-stop")
    progress(ran, "attack", "Stopped after")
    idle(ran, "#attack-curve")
    ran.wait_for_selector("#attack-stop[disabled]")


def test_a_column_without_a_watermark_cannot_be_attacked(page):
    lab_tab(page, "Attack")
    page.click("#attack-attack")
    expect_message(page, "there is no text yet")
    tab(page, "Compare")
    fill(page, "shared-max_new_tokens", 4)
    with running(page):
        pass
    lab_tab(page, "Attack")
    page.wait_for_function(
        "document.querySelector('#attack-column input').value.includes('(no watermark)')"
    )
    page.click("#attack-attack")
    expect_message(page, "no watermark to attack")
    idle(page, "#attack-attack")
    assert page.input_value("#attack-column input").endswith("(no watermark)")


# Calibrate


def set_calibration(page, **fields):
    for name, value in fields.items():
        fill(page, f"calibrate-{name}", value)


def biases(page, text):
    field = page.locator("#calibrate-biases").locator("input, textarea")
    field.first.fill(text)
    page.keyboard.press("Tab")


def test_a_calibration_is_shown_and_saved(page, lab, folder, cache):
    lab_tab(page, "Calibrate")
    set_calibration(page, bias=4, texts=4, length=30, keys=1)
    biases(page, "0")
    page.click("#calibrate-calibrate")
    page.wait_for_selector("#calibrated-cost .js-plotly-plot", timeout=SLOW)
    fields = {"bias": 4.0, "greenlist_ratio": 0.25}
    spec = CalibrationSpec(fields=fields, texts=4, length=30, biases=(0.0,), others=4, keys=1)
    assert list(cache.glob("calibrations/*.json")), "it is stored in the cache of the test"
    *_, last = calibrate(lab, spec)
    shown = cells(page, "#calibrated-table")
    assert [row[0] for row in shown] == ["25", "30"]
    for row, expected in zip(shown, last.result.by_length, strict=True):
        assert row[1:5] == [
            f"{expected.mean:.2f}",
            rate(expected.found),
            rate(expected.false_alarms),
            f"{expected.auc:.4f}",
        ]
        assert row[5] == rate(expected.operating[0].true_positives)
        assert row[6] == "too few texts", "450 scores cannot show one in a thousand"
    assert "4 watermarked texts of 30 tokens, 450 scores" in page.input_value(
        "#calibrated-words textarea"
    )
    drawn = page.evaluate(
        "[...document.querySelector('#calibrated-power .js-plotly-plot').data[0].y]"
    )
    assert drawn == pytest.approx(last.result.power)
    scores = downloaded(page, "#calibrated-csv", folder)
    assert scores.read_bytes().decode() == last.result.to_csv()
    every = json.loads(downloaded(page, "#calibrated-json", folder).read_text())
    assert every["by_length"] == json.loads(last.result.to_json())["by_length"]


def test_a_calibration_can_be_stopped_and_is_limited_in_size(page):
    lab_tab(page, "Calibrate")
    set_calibration(page, bias=2, texts=600, length=60, keys=1, seed=random.randrange(10**9))
    page.click("#calibrate-calibrate")
    progress(page, "calibrate", "generating texts with bias 2")
    page.click("#calibrate-stop")
    progress(page, "calibrate", "Stopped.")
    idle(page, "#calibrate-calibrate")
    set_calibration(page, texts=9000)
    page.click("#calibrate-calibrate")
    expect_message(page, "at most 60,000 are allowed")
    idle(page, "#calibrate-calibrate")
    assert page.input_value("#calibrate-texts input") == "9000"
    set_calibration(page, texts=4)
    biases(page, "0; 1")
    page.click("#calibrate-calibrate")
    expect_message(page, "they must be numbers separated by commas")


def test_leaving_the_page_stops_its_calibration(browser, address):
    def begins():
        with opened(browser, address) as page:
            ready(page)
            lab_tab(page, "Calibrate")
            set_calibration(page, texts=600, length=60, keys=1, seed=random.randrange(10**9))
            page.click("#calibrate-calibrate")
            page.wait_for_selector(
                "#calibrate-progress progress, .toast-body:has-text('again later')", timeout=SLOW
            )
            return page.locator("#calibrate-progress progress").count() == 1

    for _ in range(3):  # two at once are allowed
        wait(begins, seconds=60)


# Guess


def test_the_answer_is_sent_after_the_guess_and_the_score_is_kept(page):
    lab_tab(page, "Guess")
    page.get_by_label("bias 4: strong").check()
    page.click("#guess-new-round")
    idle(page, "#guess-A")
    panel = page.locator("#pages").inner_html()
    assert 'class="green"' not in panel and "lab-words" not in panel
    for word in ("watermarking_config", "hashing_key", "greenlist"):
        assert word not in panel.split("guess-prompt")[1].split("guess-tally")[0]
    texts = {side: page.input_value(f"#guess-text-{side} textarea") for side in "AB"}
    assert all(texts.values()) and texts["A"] != texts["B"]
    page.click("#guess-B")
    page.wait_for_selector("#guess-verdict .lab-words")
    verdict = page.inner_text("#guess-verdict .lab-words")
    right = re.match(r"(Correct|Wrong): ([AB]) has the watermark", verdict)
    assert (right[1] == "Correct") == (right[2] == "B")
    rows = cells(page, "#guess-verdict")
    [marked] = [row for row in rows if row[0].endswith(", watermarked")]
    [other] = [row for row in rows if not row[0].endswith(", watermarked")]
    assert marked[0] == f"{right[2]}, watermarked" and float(marked[1]) > float(other[1])
    for place, row in enumerate(rows):
        tokens = page.locator("#guess-verdict .lab-tokens").nth(place).locator("span")
        words = tokens.evaluate_all("all => all.map(token => token.textContent)")
        assert "".join(words) == texts[row[0][0]]
        green = page.locator("#guess-verdict .lab-tokens").nth(place).locator(".green").count()
        assert row[4].split()[0] == str(green)
    score = 1 if right[1] == "Correct" else 0
    assert page.inner_text("#guess-tally").startswith(f"{score} of 1 guess correct")
    page.wait_for_selector("#guess-A[disabled]")
    page.wait_for_selector("#guess-B[disabled]")
    _the_score_is_kept_over_rounds(page)


def _the_score_is_kept_over_rounds(page):
    for number in (2,):
        idle(page, "#guess-new-round")
        page.click("#guess-new-round")
        idle(page, "#guess-A")
        page.click("#guess-A")
        page.wait_for_selector(f"#guess-tally >> text=of {number} guess")


# Without a browser


def test_closing_a_job_stops_it_and_lets_others_start():
    jobs, seen = Jobs("a job", 1), []

    def work(stop, report):
        seen.append(stop)
        while not stop.wait(0.01):
            report(1)

    steps = jobs.run("anna", work)
    next(steps)
    for visitor, words in (
        ("anna", "a job is already running"),
        ("ben", "at most 1 of these at once"),
    ):
        with pytest.raises(PlaygroundError, match=words):
            next(jobs.run(visitor, work))
    steps.close()
    assert seen[0].is_set()

    def free():
        try:
            return next(jobs.run("ben", lambda stop, report: report(2))) == [2]
        except PlaygroundError:  # it has not looked up yet
            return False

    wait(free)


def test_stop_affects_only_the_visitors_job_and_errors_are_raised():
    jobs = Jobs("a job", 2)
    stopped = []

    def work(stop, report):
        report(0)
        stopped.append(stop.wait(20))
        raise PlaygroundError("it broke")

    steps = jobs.run("anna", work)
    assert next(steps) == [0]
    jobs.stop("ben")
    jobs.stop("anna")
    with pytest.raises(PlaygroundError, match="it broke"):
        list(steps)
    assert stopped == [True]


def test_text_is_escaped():
    nasty = "<img src=x onerror=alert(1)>&"
    drawn = [
        tables.table(nasty, [nasty], [[nasty, nasty]]),
        tables.tokens(nasty, [(nasty, "green")]),
        tables.progress(nasty, 1, 2),
        tables.sentence(nasty),
    ]
    for html in drawn:
        assert "<img" not in html and "&lt;img" in html
