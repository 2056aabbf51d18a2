"""Texts under the distributions of other strategies."""

import math

import pytest

from tests.visualizers.samples import Word, chain, scored
from visualizers.compare import cross_likelihood

log = math.log


def test_a_cell_is_the_mean_over_the_tokens_that_were_not_cut():
    text = [Word(1, 0.5, 0.25), Word(2, 0.25, None), Word(3, 0.5, 0.5)]
    info = cross_likelihood._info([scored(chain("x", text), "sample", top_k=2)])
    assert info.columns == ("the model itself", "sample · top_k=2")
    ((own, strategy),) = info.cells
    assert own == (pytest.approx((2 * log(0.5) + log(0.25)) / 3), 0, 3)
    assert strategy == (pytest.approx((log(0.25) + log(0.5)) / 2), 1, 3)
    assert "1 cut" in cross_likelihood._figure(info).data[0].text[0][1]


def test_rows_are_texts_and_columns_are_strategies_with_their_settings():
    one, two = chain("x", [Word(1)]), chain("x", [Word(2)])
    ways = [("greedy", {}), ("sample", {"top_k": 2}), ("sample", {"top_k": 9})]
    traces = [scored(text, way, **settings) for text in (one, two) for way, settings in ways]
    info = cross_likelihood._info(traces[:-1])
    assert info.texts == (" w1", " w2")
    assert info.columns[1:] == ("greedy", "sample · top_k=2", "sample · top_k=9")
    assert info.cells[1][3] is None and all(info.cells[0])
    assert [word.text for word in cross_likelihood._figure(info).layout.annotations] == [
        "not scored"
    ]


def test_a_text_whose_tokens_are_all_cut_has_no_mean():
    info = cross_likelihood._info([scored(chain("x", [Word(1, 0.5, None)] * 2), "greedy")])
    assert info.cells[0][1] == (None, 2, 2)
    assert [word.text for word in cross_likelihood._figure(info).layout.annotations] == [
        "all 2 cut"
    ]


def test_equal_continuations_of_different_texts_are_different_rows():
    texts = [chain("x", [Word(1)], before=[before]) for before in (4, 5)]
    assert len(cross_likelihood._info([scored(text) for text in texts]).texts) == 2


def test_only_scored_texts_are_shown(real):
    assert not any(map(cross_likelihood.needs, real.values()))
    mixed = cross_likelihood._info([real["greedy"], scored(real["greedy"])])
    assert len(mixed.cells) == 1
    own = [step.raw for step in real["greedy"].steps]
    assert mixed.cells[0][0].mean == pytest.approx(sum(own) / len(own))
