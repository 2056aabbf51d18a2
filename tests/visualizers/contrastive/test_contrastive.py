"""The figures of contrastive search: candidates and similarity."""

import dataclasses
import math

import pytest

from engine.trace import Token
from playground import Playground
from tests.conftest import returned, step, trace
from tests.tiny import tiny
from visualizers.contrastive import candidates, similarity


def weighed(id, parent, tick, text, event, p, s, similar_to, **more):
    score = round(0.5 * p - 0.5 * s, 6)
    notes = {"probability": p, "similarity": s, "similar_to": similar_to, "score": score, **more}
    return dataclasses.replace(step(id, parent, tick, text, event, p), notes=notes)


@pytest.fixture
def contrastive():
    """Two tokens of two candidates each; the second choice is not the most probable one."""
    steps = [
        weighed(0, None, 0, " a", "chosen", 0.7, 0.2, 1, similarities=[], since=2),
        weighed(1, None, 0, " b", "pruned", 0.2, 0.1, 0),
        weighed(2, 0, 1, " a", "pruned", 0.6, 0.9, 2),
        weighed(3, 0, 1, " c", "returned", 0.3, 0.4, 2, similarities=[0.4], since=2),
    ]
    steps[3] = dataclasses.replace(steps[3], rank=2)
    return trace("contrastive_search", {"penalty_alpha": 0.5}, steps, [returned(steps, (0, 3))])


def test_candidates_are_those_of_the_highlighted_step_best_first(contrastive):
    [first] = candidates._info([contrastive], at=0).contests
    assert [candidate.token for candidate in first.candidates] == [" a", " b"]
    assert first.position == 1 and first.alpha == 0.5
    [second] = candidates._info([contrastive], at=1).contests
    assert [(one.token, one.chosen, one.score) for one in second.candidates] == [
        (" c", True, -0.05),
        (" a", False, -0.15),
    ]


def test_by_default_the_last_choice_that_similarity_changed_is_shown(contrastive):
    assert candidates._info([contrastive]).contests[0].position == 2
    likeliest = dataclasses.replace(
        contrastive, steps=tuple(dataclasses.replace(one, rank=1) for one in contrastive.steps)
    )
    assert candidates._info([likeliest]).contests[0].position == 2  # none changed: the last one


def test_the_most_similar_token_may_be_in_the_prompt_or_in_the_text(contrastive):
    [first] = candidates._info([contrastive], at=0).contests
    assert [(one.similar_token, one.similar_position) for one in first.candidates] == [
        (" <b>", "the prompt"),
        ("Say", "the prompt"),
    ]
    [second] = candidates._info([contrastive], at=1).contests
    found = {(one.similar_token, one.similar_position) for one in second.candidates}
    assert found == {(" a", "token 1")}


def test_with_an_encoder_the_decoders_start_is_not_called_the_prompt(contrastive):
    steps = [
        dataclasses.replace(one, notes={**one.notes, "similar_to": 0}) for one in contrastive.steps
    ]
    for id in (0, 3):  # the decoder starts with one token, and the prompt has two
        steps[id] = dataclasses.replace(steps[id], notes={**steps[id].notes, "since": 1})
    changed = dataclasses.replace(contrastive, steps=tuple(steps))
    [contest] = candidates._info([changed], at=0).contests
    assert contest.candidates[0].similar_position == "the start of the text"


def test_positions_of_a_run_that_continues_a_text_count_that_text(contrastive):
    steps = tuple(
        dataclasses.replace(one, notes={**one.notes, "since": 4}) if "since" in one.notes else one
        for one in contrastive.steps
    )
    prefix = (Token(80, " x"), Token(81, " y"))
    continued = dataclasses.replace(contrastive, prefix=prefix, steps=steps)
    assert candidates._info([continued], at=3).contests[0].position == 4
    assert candidates._info([continued], at=2).contests[0].position == 3
    assert candidates._info([continued], at=0).contests[0].position == 3  # the nearest of the run
    [contest] = candidates._info([continued], at=3).contests
    [chosen] = [candidate for candidate in contest.candidates if candidate.chosen]
    assert (chosen.similar_token, chosen.similar_position) == (" x", "token 1")


def test_a_line_of_equal_score_runs_through_the_chosen_token(contrastive):
    figure = candidates.contrastive_candidates([contrastive])
    [line] = [
        data
        for data in figure.data
        if data.type == "contour" and data.contours.type == "constraint"
    ]
    assert line.contours.value == -0.05
    for x, column in zip(line.x, zip(*line.z, strict=True), strict=True):
        assert column == pytest.approx([0.5 * x - 0.5 * y for y in line.y])


def test_similarities_are_those_recorded(contrastive):
    [text] = similarity._info([contrastive]).texts
    assert text.rows == ((), (0.4,))
    assert text.axis.tokens == (" a", " c") and text.highlighted is None
    assert similarity._info([contrastive], at=1).texts[0].highlighted == 1


def test_similarities_that_were_not_recorded_leave_gaps(contrastive):
    third = weighed(4, 3, 2, " d", "returned", 0.5, 0.4, 2, similarities=[0.3], since=3)
    steps = (*contrastive.steps, third)
    longer = dataclasses.replace(contrastive, steps=steps, sequences=(returned(steps, (0, 3, 4)),))
    [text] = similarity._info([longer]).texts
    assert text.rows[2] == (None, 0.3)


def test_the_figure_of_a_long_text_stays_small():
    lab = Playground(tiny("gpt2"))
    traces = lab.compare("hi", ["contrastive_search"], max_new_tokens=200, suppress_tokens=[2])
    assert len(traces[0].sequences[0].steps) == 200
    assert len(similarity.contrastive_similarity(traces).to_json()) < 400_000
    assert len(traces[0].to_json()) < 400_000


def test_real_candidates_have_the_score_of_their_position(strategy_runs):
    [contest] = candidates._info(strategy_runs).contests
    assert len(contest.candidates) == strategy_runs[0].settings["top_k"]
    for one in contest.candidates:
        score = (1 - contest.alpha) * one.probability - contest.alpha * one.similarity
        assert one.score == pytest.approx(score, abs=1e-5)
    assert contest.candidates[0].chosen
    [text] = similarity._info(strategy_runs).texts
    assert [len(row) for row in text.rows] == list(range(len(text.axis.tokens)))


def test_an_encoder_decoders_contrastive_search_is_drawn():
    traces = Playground(tiny("t5")).compare("hi", ["contrastive_search"], max_new_tokens=6)
    [contest] = candidates._info(traces, at=0).contests
    assert {one.similar_position for one in contest.candidates} == {"the start of the text"}
    assert math.isfinite(contest.candidates[0].score)
