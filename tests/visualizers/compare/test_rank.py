"""The ranks of tokens, and how many fall into each range."""

import math

from tests.visualizers.samples import Word, chain, uncaptured
from visualizers.compare import rank

log = math.log


def test_ranks_are_counted_in_ranges():
    ranks = [1, 1, 2, 10, 11, 100, 101, 1000, 1001, 40_000]
    trace = chain("sample", [Word(place, rank=rank) for place, rank in enumerate(ranks)])
    info = rank._info([trace])
    assert [point.rank for point in info.lines[0].points] == ranks
    assert info.counts == ((2, 2, 2, 2, 2),)


def test_a_rank_that_was_not_captured_is_a_gap_and_is_not_counted():
    trace = uncaptured(chain("custom", [Word(1), Word(2, rank=7), Word(3)]), 1)
    info = rank._info([trace])
    assert info.counts == ((2, 0, 0, 0, 0),)
    assert rank._figure(info).data[0].y == (1, None, 1)


def test_the_axis_is_logarithmic_with_rank_1_at_the_top():
    axis = rank.rank([chain("sample", [Word(1), Word(2, rank=500)])]).layout.yaxis
    assert axis.type == "log"
    assert axis.range[0] > log(500, 10) > 0 > axis.range[1] > log(0.5, 10)


def test_greedy_chooses_the_first_rank_of_the_real_model(real):
    info = rank._info([real["greedy"], real["sample"]])
    assert info.counts[0] == (8, 0, 0, 0, 0)
    assert sum(info.counts[1]) == 8 > info.counts[1][0]
