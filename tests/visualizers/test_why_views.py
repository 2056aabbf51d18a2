"""The views of single strategies: numbers made by hand, and what real runs noted."""

import dataclasses
import math

import pytest

import visualizers
from engine.trace import Token
from playground import Playground
from tests.conftest import EVIL, returned, step, trace
from tests.tiny import tiny
from visualizers.beams import constraint_progress as constrained_progress
from visualizers.beams import diversity_penalty as diverse_penalty
from visualizers.contrastive import candidates as contrastive
from visualizers.contrastive import similarity as contrastive_similarity
from visualizers.dola import candidates as dola_candidates
from visualizers.dola import layers as dola_layers

PROMPT = "The capital of France is"
WHY = (
    "contrastive",
    "contrastive_similarity",
    "dola_layers",
    "dola_candidates",
    "diversity",
    "constraints",
)
CHOICES = [
    "contrastive_search",
    ("dola", {"repetition_penalty": 1.2}),
    ("diverse_beam_search", {"num_return_sequences": 3, "diversity_penalty": 2.0}),
    ("constrained_beam_search", {"force_words": ["river", "of art"], "num_beams": 4}),
]


@pytest.fixture(scope="module")
def runs(embedded):
    return embedded.compare(PROMPT, CHOICES, max_new_tokens=10, seed=0)


def weighed(id, parent, tick, text, event, p, s, like, **more):
    score = round(0.5 * p - 0.5 * s, 6)
    notes = {"probability": p, "similarity": s, "similar_to": like, "score": score, **more}
    return dataclasses.replace(step(id, parent, tick, text, event, p), notes=notes)


@pytest.fixture
def contrast():
    """Two tokens of two candidates each; the second choice goes against the more probable one."""
    steps = [
        weighed(0, None, 0, " a", "chosen", 0.7, 0.2, 1, similarities=[], since=2),
        weighed(1, None, 0, " b", "pruned", 0.2, 0.1, 0),
        weighed(2, 0, 1, " a", "pruned", 0.6, 0.9, 2),
        weighed(3, 0, 1, " c", "returned", 0.3, 0.4, 2, similarities=[0.4], since=2),
    ]
    steps[3] = dataclasses.replace(steps[3], rank=2)
    return trace("contrastive_search", {"penalty_alpha": 0.5}, steps, [returned(steps, (0, 3))])


def test_candidates_are_those_of_the_pinned_step_best_first(contrast):
    [first] = contrastive._info([contrast], at=0).weighings
    assert [candidate.token for candidate in first.candidates] == [" a", " b"]
    assert first.place == 1 and first.alpha == 0.5
    [second] = contrastive._info([contrast], at=1).weighings
    assert [(one.token, one.chosen, one.score) for one in second.candidates] == [
        (" c", True, -0.05),
        (" a", False, -0.15),
    ]


def test_unpinned_the_last_choice_that_likeness_changed_is_shown(contrast):
    [weighing] = contrastive._info([contrast]).weighings
    assert weighing.place == 2
    straight = dataclasses.replace(
        contrast, steps=tuple(dataclasses.replace(one, rank=1) for one in contrast.steps)
    )
    assert contrastive._info([straight]).weighings[0].place == 2  # then it is the last one


def test_the_earlier_token_is_named_wherever_it_stands(contrast):
    [first] = contrastive._info([contrast], at=0).weighings
    assert [(one.like, one.like_place) for one in first.candidates] == [
        (" <b>", "the prompt"),
        ("Say", "the prompt"),
    ]
    [second] = contrastive._info([contrast], at=1).weighings
    assert {(one.like, one.like_place) for one in second.candidates} == {(" a", "token 1")}


def test_behind_an_encoder_likeness_to_its_start_is_not_called_the_prompts(contrast):
    steps = [
        dataclasses.replace(one, notes={**one.notes, "similar_to": 0}) for one in contrast.steps
    ]
    for id in (0, 3):  # one token stood there, and the prompt has two
        steps[id] = dataclasses.replace(steps[id], notes={**steps[id].notes, "since": 1})
    [weighing] = contrastive._info(
        [dataclasses.replace(contrast, steps=tuple(steps))], at=0
    ).weighings
    assert weighing.candidates[0].like_place == "the beginning of the text"


def test_a_run_that_goes_on_counts_its_places_from_the_text_before(contrast):
    further = dataclasses.replace(contrast, prefix=(Token(80, " x"), Token(81, " y")))
    further = dataclasses.replace(
        further,
        steps=tuple(
            dataclasses.replace(
                one, notes={**one.notes, **({"since": 4} if "since" in one.notes else {})}
            )
            for one in further.steps
        ),
    )
    assert contrastive._info([further], at=3).weighings[0].place == 4
    [weighing] = contrastive._info([further], at=2).weighings
    assert weighing.place == 3
    pinned_before = contrastive._info([further], at=0).weighings[0]
    assert pinned_before.place == 3  # the nearest there is
    [candidate] = [
        c for c in contrastive._info([further], at=3).weighings[0].candidates if c.chosen
    ]
    assert (candidate.like, candidate.like_place) == (" x", "token 1")


def test_a_line_of_equal_score_runs_through_the_winner(contrast):
    figure = contrastive.contrastive([contrast])
    [own] = [
        data
        for data in figure.data
        if data.type == "contour" and data.contours.type == "constraint"
    ]
    assert own.contours.value == -0.05
    for x, column in zip(own.x, zip(*own.z, strict=True), strict=True):
        assert column == pytest.approx([0.5 * x - 0.5 * y for y in own.y])


def test_likeness_is_what_the_run_noted(contrast):
    [each] = contrastive_similarity._info([contrast]).texts
    assert each.rows == ((), (0.4,))
    assert each.text.tokens == (" a", " c") and each.pinned is None
    assert contrastive_similarity._info([contrast], at=1).texts[0].pinned == 1


def test_likeness_that_was_not_told_leaves_gaps(contrast):
    third = weighed(4, 3, 2, " d", "returned", 0.5, 0.4, 2, similarities=[0.3], since=3)
    steps = (*contrast.steps, third)
    longer = dataclasses.replace(contrast, steps=steps, sequences=(returned(steps, (0, 3, 4)),))
    [each] = contrastive_similarity._info([longer]).texts
    assert each.rows[2] == (None, 0.3)


def test_likeness_within_a_long_text_makes_a_figure_that_can_be_sent():
    lab = Playground(tiny("gpt2"))
    traces = lab.compare("hi", ["contrastive_search"], max_new_tokens=200, suppress_tokens=[2])
    assert len(traces[0].sequences[0].steps) == 200
    assert len(contrastive_similarity.contrastive_similarity(traces).to_json()) < 400_000
    assert len(traces[0].to_json()) < 400_000


def test_real_candidates_are_on_the_lines_their_scores_say(runs):
    [weighing] = contrastive._info(runs).weighings
    assert len(weighing.candidates) == runs[0].settings["top_k"]
    for one in weighing.candidates:
        score = (1 - weighing.alpha) * one.probability - weighing.alpha * one.similarity
        assert one.score == pytest.approx(score, abs=1e-5)
    assert weighing.candidates[0].chosen
    [each] = contrastive_similarity._info(runs).texts
    assert [len(row) for row in each.rows] == list(range(len(each.text.tokens)))


@pytest.fixture
def dola():
    """Two tokens, three layers given in no order."""
    notes = [
        {
            "layer": 0,
            "divergences": {"4": 1.0, "0": 3.0, "2": 2.0},
            "candidates": [[0, -3.0, -9.0, -5.0, -1.0], [90, -2.0, -4.0, -3.0, -2.0]],
            "cut": [90],
        },
        {
            "layer": 4,
            "divergences": {"4": 7.0, "0": 5.0, "2": 6.0},
            "candidates": [[90, -8.0, -1.0, -1.0, -1.5], [1, -6.0, -1.0, -1.0, -1.0]],
            "cut": [],
        },
    ]
    steps = [
        step(0, None, 0, " a", "chosen", 0.8, **notes[0]),
        step(1, 0, 1, " b", "returned", 0.4, **notes[1]),
    ]
    return trace("dola", {}, steps, [returned(steps, (0, 1))])


def test_layers_stand_in_order_with_the_contrasted_one_marked(dola):
    [each] = dola_layers._info([dola], at=1).texts
    assert each.layers == (0, 2, 4)
    assert each.divergences == ((3.0, 5.0), (2.0, 6.0), (1.0, 7.0))
    assert each.contrasted == (0, 4) and each.pinned == 1
    marks = dola_layers._figure(dola_layers._info([dola])).data[1]
    assert (list(marks.x), list(marks.y)) == ([1, 2], [0, 2])


def test_a_token_has_its_word_from_every_layer_and_the_final_one_last(dola):
    [contest] = dola_candidates._info([dola], at=0).contests
    assert contest.layers == (0, 2, 4) and contest.contrasted == 0
    chosen, rival = contest.courses
    assert (chosen.token, chosen.fate, chosen.contrast) == (" a", "chosen", 8.0)
    assert chosen.log_probs == (-9.0, -5.0, -3.0, -1.0)
    assert (rival.token, rival.fate, rival.contrast) == (" rival", "cut", 2.0)


def test_a_token_that_no_place_of_the_trace_spells_is_called_by_its_number(dola):
    notes = {**dola.steps[1].notes, "candidates": [[1, -6.0, -1.0, -1.0, -1.0], [777, *[-2.0] * 4]]}
    steps = (dola.steps[0], dataclasses.replace(dola.steps[1], notes=notes))
    [contest] = dola_candidates._info([dataclasses.replace(dola, steps=steps)]).contests
    assert [course.token for course in contest.courses] == [" b", "token 777"]


def test_traces_that_noted_two_layers_only_still_show_their_divergences(dola):
    steps = tuple(
        dataclasses.replace(one, notes={**one.notes, "candidates": [[0, -3.0, -1.0]]})
        for one in dola.steps
    )
    old = dataclasses.replace(dola, steps=steps)
    assert dola_layers.needs(old) and not dola_candidates.needs(old)


def test_what_real_layers_said_ends_at_the_models_own_word(runs):
    path = visualizers.best_path(runs[1])
    for at, one in enumerate(path):
        [contest] = dola_candidates._info(runs, at).contests
        assert contest.courses[0].fate == "chosen" and contest.courses[0].token == one.token.text
        assert contest.courses[0].log_probs[-1] == pytest.approx(one.raw, abs=1e-4)
        assert [course.fate for course in contest.courses].count("chosen") == 1
    [each] = dola_layers._info(runs).texts
    for place, layer in enumerate(each.contrasted):
        column = [row[place] for row in each.divergences]
        assert each.layers[column.index(max(column))] == layer


@pytest.fixture
def groups():
    """Two groups of one beam: the second keeps out of the way at 1, and pays at 2."""

    def told(id, parent, tick, text, event, group, total, penalty, **more):
        notes = {"group": group, "total": total, "penalty": penalty, **more}
        return step(id, parent, tick, text, event, 0.5, **notes)

    steps = [
        told(0, None, 0, " a", "chosen", 0, -0.5, 0.0, avoided=[]),
        told(1, None, 0, " b", "pruned", 0, -0.9, 0.0),
        told(2, None, 0, " b", "chosen", 1, -0.9, 0.0, avoided=[[0, 1.0, -1.5]]),
        told(3, None, 0, " c", "pruned", 1, -1.2, 0.0),
        told(4, 0, 1, " d", "returned", 0, -1.0, 0.0, avoided=[]),
        told(5, 2, 1, " d", "returned", 1, -2.4, 1.0, avoided=[[4, 1.0, -2.4]]),
        told(6, 2, 1, " e", "pruned", 1, -9.0, 0.0),
    ]
    steps[5] = dataclasses.replace(steps[5], token=steps[4].token)
    best = [returned(steps, (0, 4), -0.5), returned(steps, (2, 5), -1.2)]
    return trace("diverse_beam_search", {"num_beams": 2}, steps, best)


def test_a_group_pays_for_what_it_takes_and_loses_what_the_penalty_drives_away(groups):
    [search] = diverse_penalty._info([groups]).searches
    (free, also_free), (kept_away, paying) = search.rows
    assert free.paid == also_free.paid == 0 and not free.driven
    assert kept_away.paid == 0 and kept_away.driven == ((" a", 1.0, -1.5),)
    assert paying.paid == 1.0 and not paying.driven
    hover = diverse_penalty._figure(diverse_penalty._info([groups])).data[0].hovertext
    assert "<b>␣a</b> -0.50 − 1 = -1.50 (worst kept: -0.90)" in hover[1][0]


def test_what_would_have_lost_anyway_was_not_driven_away(groups):
    steps = list(groups.steps)
    weak = {**steps[2].notes, "avoided": [[0, 1.0, -1.95]]}
    steps[2] = dataclasses.replace(steps[2], notes=weak)
    [search] = diverse_penalty._info([dataclasses.replace(groups, steps=tuple(steps))]).searches
    assert not search.rows[1][0].driven


def test_real_groups_pay_what_their_steps_noted(runs):
    [search] = diverse_penalty._info(runs).searches
    assert len(search.rows) == 3 and {len(row) for row in search.rows} == {10}
    paid = sum(s.notes["penalty"] for s in runs[2].steps if s.event != "pruned")
    assert sum(cell.paid for row in search.rows for cell in row) == pytest.approx(paid)
    assert any(cell.driven for row in search.rows for cell in row)
    assert not any(cell.paid or cell.driven for cell in search.rows[0])


@pytest.fixture
def constrained():
    def told(id, parent, tick, text, event, bank, counts, forced):
        return step(
            id, parent, tick, text, event, 0.5, bank=bank, constraints=counts, forced=forced
        )

    steps = [
        told(0, None, 0, " a", "chosen", 0, [[0, 1], [0, 2]], False),
        told(1, None, 0, " x", "chosen", 2, [[1, 1], [0, 2]], True),
        told(2, None, 0, " b", "pruned", 0, [[0, 1], [0, 2]], False),
        told(3, 1, 1, " y", "returned", 3, [[1, 1], [1, 2]], True),
        told(4, 0, 1, " x", "finished", 2, [[1, 1], [0, 2]], False),
    ]
    words = {"force_words": [[[1]], [[3, 888], [888]]]}
    return trace("constrained_beam_search", words, steps, [returned(steps, (1, 3), -1.0)])


def test_progress_is_that_of_the_best_text_and_banks_count_all_that_was_kept(constrained):
    [search] = constrained_progress._info([constrained], at=0).searches
    assert search.done == (((1, 1), (1, 1)), ((0, 2), (1, 2)))
    assert search.forced == (True, True) and search.bank == (2, 3)
    assert search.banks == ({0: 1, 2: 1}, {3: 1, 2: 1})
    assert search.phrases == ("x", "phrase 2")  # token 888 is spelled nowhere
    assert search.pinned == 0


def test_real_constraints_are_named_and_end_where_the_last_step_says(runs):
    [search] = constrained_progress._info(runs).searches
    assert search.phrases == ("river", "of art")
    last = visualizers.best_path(runs[3])[-1].notes["constraints"]
    assert [row[-1] for row in search.done] == [tuple(count) for count in last]
    assert len(search.banks) == len(search.text.tokens) == 10
    assert all(bank in kept for bank, kept in zip(search.bank, search.banks, strict=True))
    assert all(sum(kept.values()) >= 4 for kept in search.banks)


@pytest.mark.parametrize("id", WHY)
@pytest.mark.parametrize("at", [None, 0, 4, 99])
def test_every_view_draws_real_runs_wherever_one_points(runs, id, at):
    [view] = [view for view in visualizers.applicable(runs) if view.id == id]
    assert view.tab == "why" and sum(map(view.needs, runs)) == 1
    figure = view.draw(runs, at)
    assert figure.data and len(figure.to_json()) < 200_000
    twice = view.draw([*runs, *runs], at)  # one panel below the other, at most two for a run
    assert len(list(twice.select_yaxes())) == 2 * len(list(figure.select_yaxes()))
    axes = [*twice.select_xaxes(), *twice.select_yaxes()]
    assert all(axis.title.text for axis in axes)


@pytest.mark.parametrize("id", WHY)
def test_no_view_of_a_strategy_lets_a_token_be_read_as_html(runs, id):
    [view] = [view for view in visualizers.applicable(runs) if view.id == id]
    evil = [
        dataclasses.replace(
            run,
            prompt_tokens=tuple(Token(token.id, EVIL) for token in run.prompt_tokens),
            steps=tuple(
                dataclasses.replace(one, token=Token(one.token.id, EVIL)) for one in run.steps
            ),
        )
        for run in runs
    ]
    assert "<img" not in view.draw(evil).to_json().replace("\\u003c", "<")


def test_an_encoder_decoders_contrastive_search_is_drawn_too():
    traces = Playground(tiny("t5")).compare("hi", ["contrastive_search"], max_new_tokens=6)
    [weighing] = contrastive._info(traces, at=0).weighings
    assert {one.like_place for one in weighing.candidates} == {"the beginning of the text"}
    assert math.isfinite(weighing.candidates[0].score)
