"""Theory, the comparison of texts and the chi-square test, against independent results."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from engine.errors import PlaygroundError
from engine.trace import Candidate, Distribution, Step, Tick, Token, Trace
from playground.speculation.acceptance import by_confidence, by_entropy, verified_tokens
from playground.speculation.chi_square import chi_square, critical, noncentral_tail, tail
from playground.speculation.lossless import check
from playground.speculation.theory import (
    best_length,
    costs,
    expected_tokens,
    speed_up,
    theory,
)
from tests.drafted_traces import DRAFTERS, drafted, plain, tree


def simulated(acceptance: float, length: int, ratio: float, row: float) -> tuple[float, float]:
    """Tokens per round and speed-up of simulated rounds, with random acceptance."""
    chances, rounds = Random(1), 20_000
    tokens = 0
    for _ in range(rounds):
        kept = 0
        while kept < length and chances.random() < acceptance:
            kept += 1
        tokens += kept + 1
    return tokens / rounds, tokens / (rounds * (length * ratio + 1 + length * row))


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("length", [0, 1, 4, 9])
def test_formulas_agree_with_simulated_rounds(acceptance: float, length: int) -> None:
    tokens, faster = simulated(acceptance, length, 0.1, 0.05)
    assert expected_tokens(acceptance, length) == pytest.approx(tokens, rel=0.02)
    assert speed_up(acceptance, length, 0.1, 0.05) == pytest.approx(faster, rel=0.02)


def test_best_length_is_the_maximum_of_the_curve_and_0_if_drafting_does_not_pay() -> None:
    curve = [speed_up(0.7, length, 0.1) for length in range(17)]
    assert curve[best_length(0.7, 0.1)] == max(curve) > 1
    assert best_length(0.3, 0.6) == 0
    assert best_length(0.7, 0.1, row=0.2) < best_length(0.7, 0.1)


def flat(steps: int, ms: float) -> Trace:
    """A plain run whose every step takes the same time."""
    run = plain("good", steps)
    return replace(run, ticks=(Tick(0, 0, 0.0), *(Tick(1, 1, ms) for _ in run.steps[1:])))


def test_costs_come_from_the_rounds_of_both_runs() -> None:
    measured = costs(flat(9, 20.0), tree())
    # Seven tokens were drafted in 17 ms; verification took 40 ms for six rows, 30 ms for three.
    assert measured.plain_ms == 20.0 and measured.draft_ms == pytest.approx(17 / 7)
    assert measured.ratio == pytest.approx(17 / 7 / 20) and measured.verify == pytest.approx(1.75)
    assert measured.rows == 4.5 and measured.row == pytest.approx((5 * 1.0 + 2 * 0.5) / (25 + 4))


def test_theory_has_both_curves_and_the_measured_speed_up() -> None:
    found = theory(flat(9, 20.0), tree())
    assert found.acceptance == pytest.approx(2 / 3) and found.length == pytest.approx(3.5)
    assert found.tree and len(found.ideal) == len(found.here) == 17
    assert all(ours <= theirs for ours, theirs in zip(found.here, found.ideal, strict=True))
    assert found.expected < found.expected_ideal
    assert found.measured == pytest.approx((8 * 20 / 9) / (83 / 5))
    assert found.best == best_length(found.acceptance, found.costs.ratio, found.costs.row)


def test_theory_of_a_run_without_drafts_raises() -> None:
    with pytest.raises(PlaygroundError, match="drafted nothing"):
        theory(flat(9, 20.0), plain("good"))


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_texts_with_and_without_drafts_are_equal(name: str) -> None:
    found = check(plain(name), drafted(name))
    assert found.same and found.first is None and found.near_tie is None
    assert len(found.pairs) == 24 and found.summary == "All 24 tokens are the same."
    assert found.closest is not None and found.noise < 1e-3


def planted(trace: Trace, at: int, gap: float) -> tuple[Trace, Trace]:
    """Two copies of the trace that differ at one token, by ``gap`` in log-probability."""
    one, other = Token(7, " one"), Token(8, " other")
    best = 0.4
    pair = (one, best), (other, best * math.exp(-gap))

    def changed(taken: int) -> Trace:
        ordered = (pair[taken][0], best), (pair[1 - taken][0], best * math.exp(-gap))
        candidates = tuple(Candidate(token, share, (), share) for token, share in ordered)
        given = Distribution(candidates, (), 1.0, 1.0, 2)
        token = pair[taken][0]
        place = trace.sequences[0].steps[at]
        steps: list[Step] = list(trace.steps)
        steps[place] = replace(steps[place], token=token, distribution=given, final=math.log(best))
        return replace(trace, steps=tuple(steps))

    return changed(0), changed(1)


def test_difference_is_distinguished_from_a_near_tie() -> None:
    near, far = (check(*planted(plain("good"), 5, gap)) for gap in (5e-5, 0.3))
    for found in (near, far):
        assert not found.same and found.first is not None and found.first.position == 5
        assert len(found.pairs) == 6, "later tokens follow different texts"
        assert found.first.plain is not None and found.first.drafted is not None
        assert found.first.plain.token.text == " one"
        assert found.first.drafted.token.text == " other"
    assert near.near_tie and "near tie" in near.summary
    assert far.near_tie is False and "bug" in far.summary
    assert far.first is not None and far.first.plain is not None
    assert far.first.plain.gap == pytest.approx(0.3)
    assert far.first.plain.own == pytest.approx(0.4)
    assert far.first.plain.others == pytest.approx(0.4 * math.exp(-0.3))


def test_text_that_ends_early_differs_at_its_end() -> None:
    whole = plain("good")
    [text] = whole.sequences
    shorter = replace(text, steps=text.steps[:4], token_ids=text.token_ids[:4])
    found = check(whole, replace(whole, sequences=(shorter,)))
    assert found.first is not None and found.first.position == 4 and not found.near_tie
    assert "ends before token 5" in found.summary


def test_only_greedy_runs_of_one_prompt_can_be_compared() -> None:
    with pytest.raises(PlaygroundError, match="different prompts"):
        check(plain("good"), replace(drafted("good"), prompt_tokens=()))
    with pytest.raises(PlaygroundError, match="sampled texts"):
        check(plain("good"), drafted("good", True))


def test_chi_square_tail_agrees_with_published_tables() -> None:
    assert tail(3.841459, 1) == pytest.approx(0.05, abs=1e-6)
    assert tail(29.58830, 10) == pytest.approx(0.001, abs=1e-6)
    assert critical(10, 0.001) == pytest.approx(29.5883, abs=1e-3)
    assert noncentral_tail(3.841459, 1, 0.0) == pytest.approx(0.05, abs=1e-6)


def counted(shares: dict[str, float], draws: int, chances: Random) -> dict[str, int]:
    drawn = chances.choices(list(shares), list(shares.values()), k=draws)
    return {one: drawn.count(one) for one in shares}


def test_power_is_how_often_a_wrong_distribution_is_rejected() -> None:
    exact = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.04, "e": 0.01}
    wrong = {one: 0.8 * share + 0.2 / 5 for one, share in exact.items()}
    chances, draws, significance = Random(2), 300, 0.01
    test = chi_square(counted(exact, draws, chances), exact, draws)
    assert test.pooled == 1 and test.freedom == 3, "3 draws are too few for a cell"

    def rejections(shares: dict[str, float]) -> float:
        tests = [chi_square(counted(shares, draws, chances), exact, draws) for _ in range(400)]
        return sum(one.p_value < significance for one in tests) / len(tests)

    assert rejections(exact) < 0.04
    assert rejections(wrong) == pytest.approx(test.power(0.2, significance), abs=0.08)
    share = test.detectable(0.9, significance)
    assert share is not None and test.power(share, significance) == pytest.approx(0.9, abs=1e-3)


def test_impossible_outcome_is_rejected() -> None:
    test = chi_square({"a": 99, "z": 1}, {"a": 1.0}, 100)
    assert math.isinf(test.statistic) and test.p_value == 0.0


@pytest.mark.parametrize("bins", [by_entropy, by_confidence])
def test_every_verified_token_is_in_one_bin(bins: Any) -> None:
    traces = [drafted("good", True), drafted("bad", True), plain("good")]
    found = bins(traces)
    decided = verified_tokens(traces)
    assert sum(one.share.verified for one in found) == len(decided)
    kept = sum(one.verdict == "accepted" for one in decided)
    assert sum(one.share.accepted for one in found) == kept
    assert [one.low for one in found[1:]] == [one.high for one in found[:-1]]
