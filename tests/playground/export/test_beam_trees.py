"""The report draws beam trees with the page's own scripts."""

import dataclasses
import json
import re

import pytest

from playground.export.beam_trees import beam_trees
from playground.export.report import report

NODES = "#beam-trees [role=treeitem]"


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a report of traces."""
    contexts = []

    def opened(*traces):
        file = tmp_path / "report.html"
        file.write_text(report(traces), encoding="utf-8")
        contexts.append(browser.new_context())
        page = contexts[-1].new_page()
        page.errors = []
        page.on("console", lambda message: page.errors.append(message.text))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto(file.as_uri())
        page.wait_for_selector(NODES)
        return page

    yield opened
    for context in contexts:
        context.close()


def tooltip(page, name):
    page.locator(f"{NODES}[aria-label^='{name}']").first.hover()
    return page.inner_text("#tree-card")


def test_report_shows_kept_pruned_finished_and_returned_hypotheses(opened, beam_trace):
    page = opened(beam_trace)
    summary = page.inner_text("#beam-trees .summary")
    events = [step.event for step in beam_trace.steps]
    for kind, event in (("kept", "chosen"), ("pruned", "pruned"), ("finished", "finished")):
        assert f"{events.count(event)} {kind}" in summary
    assert f"{events.count('returned')} returned" in summary
    assert page.locator(NODES).count() == 1 + len(beam_trace.steps)
    assert page.locator("#beam-trees .lines path").count() == len(beam_trace.steps)
    assert page.errors == []


def test_tooltip_shows_recorded_scores_and_their_arithmetic(opened, beam_trace):
    steps = [
        dataclasses.replace(step, notes={**step.notes, "score": -0.1}) for step in beam_trace.steps
    ]
    settings = {**beam_trace.settings, "length_penalty": 2.0}
    page = opened(dataclasses.replace(beam_trace, steps=tuple(steps), settings=settings))
    text = tooltip(page, "␣d")
    assert "95.0 %, rank 1" in text
    assert "−0.5000 − 0.1000 = −0.6000" in text
    assert "−0.6000 / 2^2 = −0.3000" in text
    assert "−0.3200" in tooltip(page, "␣g")  # the score of the returned sequence


def test_beam_groups_are_in_the_legend_and_on_the_nodes(opened, embedded):
    own = {"num_beams": 4, "num_beam_groups": 2}
    page = opened(*embedded.compare("The", [("diverse_beam_search", own)], max_new_tokens=3))
    legend = page.inner_text("#beam-trees .legend")
    assert "group 1" in legend and "group 2" in legend
    assert page.locator("#beam-trees .nodes .group-1").count() > 0


def test_sampled_texts_share_one_tree_with_counts(opened, embedded):
    own = {"num_return_sequences": 4, "temperature": 0.5}
    [trace] = embedded.compare("I love my", [("sample", own)], max_new_tokens=3, seed=0)
    page = opened(trace)
    first = {sequence.token_ids[0] for sequence in trace.sequences}
    assert page.locator(f"{NODES}[aria-level='2']").count() == len(first)


def test_collapsed_path_expands_on_click(opened, beam_trace):
    chain = beam_trace.steps[:2]
    for place in range(6):
        last = chain[-1]
        made = dataclasses.replace(last, id=2 + place, parent=last.id, event="chosen")
        chain = (*chain, made)
    page = opened(dataclasses.replace(beam_trace, steps=chain, sequences=()))
    before = page.locator(NODES).count()
    page.locator("#beam-trees .nodes .folded").click()
    assert page.locator(NODES).count() > before


def test_token_cannot_end_the_script_element_with_the_data(beam_trace):
    evil = dataclasses.replace(beam_trace.steps[0].token, text="</script><script>evil()")
    step = dataclasses.replace(beam_trace.steps[0], token=evil)
    trace = dataclasses.replace(beam_trace, steps=(step, *beam_trace.steps[1:]))
    page = report([trace])
    assert "<script>evil" not in page
    data = re.search(r'id="trees">(.*?)</script>', page)[1]
    assert json.loads(data)[0]["steps"][0]["token"] == evil.text


def test_traces_without_branches_have_no_trees(greedy_trace, failed_trace):
    assert beam_trees([greedy_trace, failed_trace], ["greedy", "failed"]) is None
