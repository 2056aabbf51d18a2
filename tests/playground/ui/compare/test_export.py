"""Export: links, files and programs, each used as a reader would use it."""

import csv
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import gradio
import pytest

from engine.trace import dump_traces, load_traces
from playground import metrics as measures
from playground.ui.compare.cards import Card
from playground.ui.compare.links import State, encode
from tests.playground.ui.browsing import (
    LIMITS,
    cards,
    column,
    downloaded,
    expect_message,
    forked,
    on_tab,
    opened,
    override,
    ready,
    refused,
    remove_card,
    running,
    set_card,
    shared_link,
    tab,
    text_of,
    visiting,
    wait,
)
from visualizers import labels
from visualizers.compare.cross_likelihood import _info

PROMPT = "The cat sat on the"
CHOICES = [
    ("greedy", {"no_repeat_ngram_size": 2}),
    ("beam_search", {"num_beams": 5, "num_return_sequences": 3}),
    ("sample", {"temperature": 0.6, "top_p": 0.95}),
]
SHARED = {"max_new_tokens": 6, "seed": 3, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("take")


@pytest.fixture(scope="module")
def traces(lab):
    """The runs on the page: a comparison, and a fork of its first column."""
    runs = lab.compare(PROMPT, CHOICES, **SHARED)
    kept = [*runs[0].sequences[0].token_ids[:2], *lab.token_decoder.ids(" was")]
    return [*runs, *lab.compare(PROMPT, CHOICES[:1], prefix=kept, **SHARED)]


@pytest.fixture(scope="module")
def ran(browser, address):
    """The page after a comparison with changed settings, and a fork."""
    with opened(browser, address, lasting=True) as page:
        ready(page)
        page.fill("#prompt textarea", PROMPT)
        page.click("#shared button")
        page.fill("#shared-repetition_penalty input", "1.1")
        for name in ("max_new_tokens", "seed"):
            page.fill(f"#shared-{name} input >> nth=0", str(SHARED[name]))
        set_card(page, 2, temperature=0.6)
        override(page, 0, "no_repeat_ngram_size", 2)
        with running(page):
            pass
        page.select_option("#live-background", "entropy")
        page.select_option("#live-underline", "surprisal")
        forked(page, 0, 2, " was")
        yield page


def texts(page, count=3):
    return [text_of(page, index) for index in range(count)]


def tokens(traces):
    return [[sequence.token_ids for sequence in trace.sequences] for trace in traces]


def in_order(page):
    """The columns' texts in the order of the runs: a fork is shown after its origin."""
    first, fork, *rest = texts(page, 4)
    return [first, *rest, fork]


def full_texts(traces):
    return ["".join(token.text for token in trace.prefix) + trace.text for trace in traces]


def test_the_runs_have_the_requested_settings(ran, traces):
    assert in_order(ran) == full_texts(traces)


# A link


@pytest.fixture(scope="module")
def link(ran, address):
    tab(ran, "Charts")
    tab(ran, "Export")
    return shared_link(ran)[len(address) :]


def test_a_link_restores_form_and_view_and_gives_the_same_tokens(browser, address, link, traces):
    with opened(browser, address, link) as page:
        wait(lambda: page.input_value("#prompt textarea") == PROMPT)
        ready(page)
        assert cards(page)[0]["values"] == {"no_repeat_ngram_size": "2"}
        assert cards(page)[2]["values"]["temperature"] == "0.6"
        assert page.input_value("#model input") == "smollm2"
        assert page.locator("#kind").get_by_label("text to continue").is_checked()
        page.click("#shared button")
        for name, value in SHARED.items():
            assert float(page.input_value(f"#shared-{name} input >> nth=0")) == value
        on_tab(page, "Charts")
        with running(page):
            pass
        assert texts(page) == [trace.text for trace in traces[:3]]
        assert page.input_value("#live-background") == "entropy"
        assert page.input_value("#live-underline") == "surprisal"
        wait(lambda: len(shown_table(page)[1]) == 3)


def test_a_reload_keeps_the_state_of_a_link(browser, address, link):
    with opened(browser, address, link) as page:
        wait(lambda: page.input_value("#prompt textarea") == PROMPT)
        page.reload()
        wait(lambda: page.input_value("#prompt textarea") == PROMPT)
        ready(page)
        on_tab(page, "Charts")


FRONTEND = Path(gradio.__file__).parent / "templates/frontend/assets"
TABS = [path.name for path in FRONTEND.glob("*.js") if "data-tab-id" in path.read_text()]
LATE = {  # scripts that load late, and what is done before
    "of the link": (["page_state.js"], "document.querySelector('#tabs [role=tab]') !== null"),
    "of the tabs": (TABS, "sessionStorage.length > 0"),
}


@pytest.mark.parametrize(("scripts", "before"), LATE.values(), ids=LATE)
def test_a_link_is_followed_even_if_a_script_loads_late(browser, address, scripts, before):
    held = []
    with visiting(browser, lasting=True) as page:
        for script in scripts:
            page.route(f"**/{script}*", lambda route: held.append(route))
        page.goto(address + linked().replace("tab=step", "tab=charts"))
        page.wait_for_function(before)
        for route in held:
            route.continue_()
        wait(lambda: page.input_value("#prompt textarea") == "Hi")
        on_tab(page, "Charts")


def linked(**changes):
    state = State("smollm2", "Hi", cards=(Card("greedy"),), shared={"max_new_tokens": 4})
    folded = encode(State(**{**vars(state), **changes}))
    return f"#s={folded}&look=rank.none&tab=step"


INVALID = {
    "truncated": (linked()[:20], "this link cannot be read"),
    "unknown model, colour and tab": (linked(model="<b>other") + "<b>", "the model <b>other"),
    "values out of bounds": (
        linked(shared={"max_new_tokens": 10**9}, cards=(Card("sample", {"temperature": -1}),)),
        None,
    ),
    "too many cards": (linked(cards=(Card("greedy"),) * 9), None),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_link_shows_a_message_and_the_page_works(browser, address, name):
    query, words = INVALID[name]
    with opened(browser, address, query) as page:
        if words:
            expect_message(page, words)
        ready(page)
        page.fill("#shared-max_new_tokens input >> nth=0", "3")
        page.keyboard.press("Tab")
        if name == "values out of bounds":
            refused(page, "temperature is -1")
            return
        with running(page):
            pass
        assert column(page, 0).locator(".token").count() == 3
        assert 1 <= len(cards(page)) <= 6


def test_a_link_with_a_forbidden_strategy_is_rejected_at_the_run(browser, address):
    with opened(browser, address, linked(cards=(Card("custom"), Card("greedy")))) as page:
        ready(page)
        wait(lambda: len(cards(page)) == 2)
        refused(page, "custom runs your own code, which is not allowed here")
        remove_card(page, 0)
        with running(page):
            pass
        assert column(page, 0).locator(".token").count() == 4


# Files


@pytest.fixture(scope="module")
def saved(ran, folder):
    """The file with the traces."""
    tab(ran, "Export")
    return downloaded(ran, "#save-traces", folder)


def test_saved_traces_equal_the_runs(saved, traces):
    read = load_traces(saved.read_text(encoding="utf-8"))
    assert saved.name == "traces.json"
    assert tokens(read) == tokens(traces)
    for one, other in zip(read, traces, strict=True):
        assert (one.settings, one.seed, one.prefix) == (other.settings, other.seed, other.prefix)
        # Other runs in the same forward pass change the last digits.
        theirs = pytest.approx([step.raw for step in other.steps], abs=1e-4)
        assert [step.raw for step in one.steps] == theirs


def test_a_saved_report_is_self_contained(browser, ran, folder, traces):
    tab(ran, "Export")
    report = downloaded(ran, "#save-report", folder)
    with opened(browser, report.as_uri(), query="") as page:
        page.wait_for_selector(".js-plotly-plot .main-svg")
        for trace in traces:
            assert trace.text.strip() in page.inner_text("body")


def test_the_csv_file_has_the_metrics(ran, folder, saved):
    tab(ran, "Charts")
    file = downloaded(ran, "#save-csv", folder)
    read = load_traces(saved.read_text(encoding="utf-8"))
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["run"] for row in rows] == list(labels(read))
    for row, trace in zip(rows, read, strict=True):
        for name, value in vars(measures.run_metrics(trace)).items():
            if isinstance(value, float | int):
                assert float(row[name]) == pytest.approx(value)
            else:
                assert row[name] == ("" if value is None else value)


def chosen(page, name):
    """Choose the run of the program, and wait for it."""
    before = page.inner_text("#code .cm-content")
    page.click("#which input")
    page.get_by_role("option", name=name).click()
    page.wait_for_function(
        "before => document.querySelector('#code .cm-content').innerText !== before", arg=before
    )


def printed(program):
    """What a program prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(program.read_text(encoding="utf-8"), program.name, "exec"), {})
    return out.getvalue()


def test_saved_programs_print_the_same_texts(ran, folder, traces):
    tab(ran, "Export")
    ran.wait_for_selector("#code .cm-content >> text=lab.compare")
    whole = downloaded(ran, "#save-code", folder).rename(folder / "whole.py")
    chosen(ran, "3. sample")
    single = downloaded(ran, "#save-code", folder).rename(folder / "single.py")
    chosen(ran, "4. greedy")
    fork = downloaded(ran, "#save-code", folder).rename(folder / "fork.py")
    output = printed(whole)
    for trace in traces[:3]:
        for sequence in trace.sequences:
            assert sequence.text in output
    assert "import Playground" not in single.read_text()
    assert traces[2].text in printed(single)
    assert traces[3].text in printed(fork)


# Opening traces


def upload(page, path):
    with page.expect_file_chooser() as chooser:
        page.click("#open-traces")
    chooser.value.set_files(path)


@pytest.fixture(scope="module")
def opener(browser, address):
    with opened(browser, address, lasting=True) as page:
        ready(page)
        yield page


@pytest.fixture
def taking(opener):
    tab(opener, "Export")
    return opener


def test_saved_traces_can_be_opened_without_a_run(taking, saved, traces):
    page = taking
    upload(page, saved)
    page.wait_for_selector("#live .status >> text=Opened traces.json. Nothing was run.")
    assert texts(page, 4) == full_texts(traces)
    column(page, 2).locator(".token").nth(1).hover()
    rank = traces[2].steps[1].rank
    page.wait_for_selector(f"#live .candidates >> text=rank {rank} in the model's own order")
    column(page, 0).locator(".token").nth(1).click()
    page.keyboard.press("Escape")
    tab(page, "Step")
    page.wait_for_selector(f".step >> text={traces[0].steps[1].token.text.strip()}")
    tab(page, "Charts")
    page.wait_for_selector("#tabs .js-plotly-plot .main-svg >> visible=true")
    wait(lambda: len(shown_table(page)[1]) == 4)


def test_an_opened_trace_can_be_forked(taking, traces, lab, tmp_path):
    file = tmp_path / "three.json"
    file.write_text(dump_traces(traces[:3]), encoding="utf-8")
    page = taking
    upload(page, file)
    page.wait_for_selector("#live .status >> text=Opened three.json. Nothing was run.")
    forked(page, 2, 1, " dog")
    own = traces[2].sequences[0].token_ids[:1]
    prefix = [*own, *lab.token_decoder.ids(" dog")]
    [fork] = lab.compare(PROMPT, CHOICES[2:], prefix=prefix, **SHARED)
    assert text_of(page, 3) == full_texts([fork])[0]
    assert page.inner_text("#live .status").startswith("Done in")


def bad_files(folder, traces):
    whole = json.loads(dump_traces(traces[:1]))
    for name, content, words in (
        ("text.json", "no JSON at all", "not a valid trace file"),
        ("binary.json", b"\xff\xfe\x00", "binary.json is not a text file"),
        ("other.json", '{"a": 1}', "the trace has format version None"),
        ("half.json", json.dumps([{**whole[0], "steps": [[0]]}]), "not a valid trace file"),
        ("none.json", "[]", "none.json contains no trace"),
        ("many.json", json.dumps(whole * 6), "many.json contains 6 traces; at most 5"),
        ("deep.json", "[" * 100_000 + "]" * 100_000, "not a valid trace file"),
        ("model.json", json.dumps([{**whole[0], "model": 3}]), "not a valid trace file"),
        ("large.json", " " * (LIMITS["--upload-bytes"] + 1), "large.json"),
    ):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        yield path, words


def test_an_invalid_file_is_rejected_and_changes_nothing(taking, traces, tmp_path):
    page = taking
    page.fill("#shared-max_new_tokens input >> nth=0", "3")
    with running(page):
        pass
    before = texts(page)
    for path, words in bad_files(tmp_path, traces):
        upload(page, path)
        expect_message(page, words)
        assert texts(page) == before
    forked(page, 0, 1, " and")  # the comparison is still there
    assert text_of(page, 1).startswith(before[0][:3])


# Tables and figures


def shown_table(page):
    """The column titles of the table, and its rows."""
    names = page.locator("#table [role=columnheader]").evaluate_all("all => all.map(h => h.title)")
    rows = page.locator("#table [role=row]").evaluate_all(
        """all => all.map(row => [...row.querySelectorAll('[role=gridcell]')]
            .map(cell => cell.innerText.trim())).filter(row => row.length)"""
    )
    return names, rows


def test_the_table_has_the_metrics_and_can_be_sorted(ran, saved):
    read = load_traces(saved.read_text(encoding="utf-8"))
    tab(ran, "Charts")
    wait(lambda: len(shown_table(ran)[1]) == 4)
    names, rows = shown_table(ran)
    name = measures.METRIC_TEXTS["perplexity"].name
    expected = [measures.run_metrics(trace).perplexity for trace in read]

    def numbers():
        return [float(row[names.index(name)]) for row in shown_table(ran)[1]]

    assert [row[0] for row in rows] == list(labels(read))
    assert numbers() == pytest.approx(expected, abs=1e-3)
    assert len(set(expected)) == 4
    for words, backwards in (("Sort ascending", False), ("Sort descending", True)):
        header = ran.locator(f"#table [role=columnheader][title={name}]")
        header.hover()
        header.locator(".cell-menu-button").click()
        ran.get_by_role("menuitem", name=words).click()
        wanted = pytest.approx(sorted(expected, reverse=backwards), abs=1e-3)
        wait(lambda wanted=wanted: numbers() == wanted)


def test_each_text_is_scored_under_each_strategy(ran, traces, lab):
    tab(ran, "Charts")
    ran.click("#score")
    heat = "#figure-cross_likelihood .js-plotly-plot"
    ran.wait_for_selector(f"{heat} .main-svg", timeout=60_000)
    scored = []
    for trace in traces:
        prefix = [token.id for token in trace.prefix]
        text, choices = trace.sequences[0].token_ids, [*CHOICES, CHOICES[0]]
        scored += lab.score(PROMPT, text, choices, prefix=prefix, **SHARED)
    info = _info(scored)
    shown = ran.eval_on_selector(heat, "plot => plot.data[0].text")
    numbers = [[cell.mean for cell in row if cell] for row in info.cells]
    for words, row in zip(shown, numbers, strict=True):
        shown = [float(word.split("</b>")[0].removeprefix("<b>")) for word in words if word]
        assert shown == pytest.approx([mean for mean in row if mean is not None], abs=0.006)
