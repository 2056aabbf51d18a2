"""Running sums of log-probabilities."""

import math

import pytest

import visualizers
from tests.visualizers.samples import Word, chain
from visualizers.compare import cumulative

log = math.log


def test_log_probabilities_are_summed_along_the_text():
    (line,) = cumulative._info([chain("sample", [Word(1, 0.5, 0.8), Word(2, 0.25, 0.5)])]).lines
    assert [point.raw for point in line.points] == pytest.approx([log(0.5), log(0.125)])
    assert [point.final for point in line.points] == pytest.approx([log(0.8), log(0.4)])


def test_a_sum_ends_where_a_token_was_not_captured():
    words = [Word(1, 0.5, 0.5), Word(2, None, None), Word(3)]
    (line,) = cumulative._info([chain("custom", words)]).lines
    assert [point.raw for point in line.points] == [pytest.approx(log(0.5)), None, None]
    assert (
        "cut or not captured"
        in cumulative._figure(cumulative._info([chain("c", words)])).data[0].hovertext[2]
    )


def test_the_final_sum_ends_at_a_cut_token_and_the_raw_sum_continues():
    words = [Word(1, 0.5, 1.0), Word(2, 0.5, None), Word(3, 0.5, 1.0)]
    (line,) = cumulative._info([chain("custom", words)]).lines
    assert [point.final for point in line.points] == [0.0, None, None]
    assert line.points[2].raw == pytest.approx(3 * log(0.5))


def test_equal_sums_are_drawn_once():
    plain, warped = chain("greedy", [Word(1)]), chain("sample", [Word(1, 0.5, 0.9)])
    assert [data.line.dash for data in cumulative.cumulative([plain]).data] == [None]
    assert [data.line.dash for data in cumulative.cumulative([warped]).data] == [None, "dot"]


def test_the_sum_of_a_real_beam_is_its_score_before_length_normalization(real):
    beam = real["beam_search"]
    (line,) = cumulative._info([beam]).lines
    last = visualizers.best_path(beam)[-1]
    assert line.points[-1].raw == pytest.approx(last.notes["total"], abs=1e-3)
