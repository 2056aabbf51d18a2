"""The figures of DoLa: layers and candidates."""

import dataclasses

import pytest

import visualizers
from tests.conftest import returned, step, trace
from visualizers.dola import candidates, layers


@pytest.fixture
def dola():
    """Two tokens and three layers, recorded out of order."""
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


def test_layers_are_in_order_and_the_contrasted_one_is_marked(dola):
    [text] = layers._info([dola], at=1).texts
    assert text.layers == (0, 2, 4)
    assert text.divergences == ((3.0, 5.0), (2.0, 6.0), (1.0, 7.0))
    assert text.contrasted == (0, 4) and text.highlighted == 1
    marks = layers._figure(layers._info([dola])).data[1]
    assert (list(marks.x), list(marks.y)) == ([1, 2], [0, 2])


def test_a_candidate_has_a_log_probability_per_layer_and_the_final_one_last(dola):
    [contest] = candidates._info([dola], at=0).contests
    assert contest.layers == (0, 2, 4) and contest.contrasted == 0
    chosen, rival = contest.candidates
    assert (chosen.token, chosen.outcome, chosen.contrast) == (" a", "chosen", 8.0)
    assert chosen.log_probs == (-9.0, -5.0, -3.0, -1.0)
    assert (rival.token, rival.outcome, rival.contrast) == (" rival", "cut", 2.0)


def test_a_token_whose_text_is_not_in_the_trace_is_named_by_its_id(dola):
    notes = {**dola.steps[1].notes, "candidates": [[1, -6.0, -1.0, -1.0, -1.0], [777, *[-2.0] * 4]]}
    steps = (dola.steps[0], dataclasses.replace(dola.steps[1], notes=notes))
    [contest] = candidates._info([dataclasses.replace(dola, steps=steps)]).contests
    assert [candidate.token for candidate in contest.candidates] == [" b", "token 777"]


def test_traces_without_every_layers_log_probabilities_still_show_divergences(dola):
    steps = tuple(
        dataclasses.replace(one, notes={**one.notes, "candidates": [[0, -3.0, -1.0]]})
        for one in dola.steps
    )
    old = dataclasses.replace(dola, steps=steps)
    assert layers.needs(old) and not candidates.needs(old)


def test_real_candidates_end_at_the_models_own_log_probability(strategy_runs):
    path = visualizers.best_path(strategy_runs[1])
    for at, one in enumerate(path):
        [contest] = candidates._info(strategy_runs, at).contests
        chosen = contest.candidates[0]
        assert (chosen.outcome, chosen.token) == ("chosen", one.token.text)
        assert chosen.log_probs[-1] == pytest.approx(one.raw, abs=1e-4)
        assert [candidate.outcome for candidate in contest.candidates].count("chosen") == 1
    [text] = layers._info(strategy_runs).texts
    for index, layer in enumerate(text.contrasted):
        column = [row[index] for row in text.divergences]
        assert text.layers[column.index(max(column))] == layer
