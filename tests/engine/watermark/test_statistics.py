"""Watermark statistics against exact sums."""

import math
from fractions import Fraction

import pytest

from engine.watermark.statistics import (
    MARKED,
    TOO_SHORT,
    UNMARKED,
    NullHypothesis,
    binomial_tail,
    normal_tail,
    score_values,
    verdict,
)

QUARTER = NullHypothesis(0.25, 0.1875, 0.25)


def summed(successes, trials, chance):
    """The sum of all terms as exact fractions."""
    p = Fraction(chance)
    return float(
        sum(
            math.comb(trials, k) * p**k * (1 - p) ** (trials - k)
            for k in range(max(0, successes), trials + 1)
        )
    )


@pytest.mark.parametrize("chance", [0.25, 0.5, 0.9, 0.001])
@pytest.mark.parametrize("trials", [1, 2, 7, 48, 199])
def test_the_binomial_tail_is_the_sum_of_its_terms(trials, chance):
    for successes in {*range(-1, trials + 2, max(1, trials // 9)), trials, trials + 1}:
        expected = summed(successes, trials, chance)
        assert binomial_tail(successes, trials, chance) == pytest.approx(expected, rel=1e-10)


def test_the_binomial_tail_of_many_trials_is_finite_and_accurate():
    assert binomial_tail(125_000, 250_000, 0.5) == pytest.approx(0.5, abs=0.001)
    assert binomial_tail(250_000, 250_000, 0.5) == 0.0
    assert 0 < binomial_tail(65_000, 250_000, 0.25) < 1e-29
    assert binomial_tail(0, 0, 0.25) == 1.0
    # Four deviations out, the sum still agrees with the normal tail: no error accumulates.
    deviation = math.sqrt(250_000 * 0.25)
    at = round(125_000 + 4 * deviation)
    assert binomial_tail(at, 250_000, 0.5) == pytest.approx(normal_tail(4), rel=0.02)


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_the_binomial_tail_of_certain_outcomes(chance):
    assert binomial_tail(0, 5, chance) == 1.0
    assert binomial_tail(3, 5, chance) == chance


def test_a_text_without_scored_tokens_has_a_neutral_score():
    nothing = score_values([], 0, QUARTER)
    assert (nothing.z_score, nothing.exact_p, nothing.green_fraction) == (0.0, 1.0, 0.0)
    for threshold in (-10.0, 0.0, 3.0):
        assert verdict(nothing, nothing, threshold, QUARTER) == TOO_SHORT


@pytest.mark.parametrize(
    ("green", "scored", "threshold", "expected"),
    [
        (4, 4, 3.0, TOO_SHORT),  # z is 3.5, but the probability by chance is 1 in 256
        (5, 5, 3.0, MARKED),
        (4, 5, 3.0, UNMARKED),
        (8, 8, 5.0, TOO_SHORT),
        (25, 100, 3.0, UNMARKED),
        (60, 100, 3.0, MARKED),
    ],
)
def test_verdicts_by_number_of_green_tokens_and_threshold(green, scored, threshold, expected):
    values = [1.0] * green + [0.0] * (scored - green)
    score = score_values(values, green, QUARTER)
    assert verdict(score, score, threshold, QUARTER) == expected
