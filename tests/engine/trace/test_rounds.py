"""Rounds read off a trace, counted again by hand and by other means."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from engine.trace import Tick, Trace
from engine.trace.rounds import arrivals, by_position, needs, prompt_ms, rounds
from playground.speculation.accounting import accounting
from tests.drafted_traces import DRAFTERS, cut_short, drafted, plain, tree

RUNS = [(name, sampled) for name in DRAFTERS for sampled in (False, True)]


@pytest.fixture(params=RUNS, ids=lambda run: f"{run[0]}, {'drawn' if run[1] else 'greedy'}")
def trace(request: pytest.FixtureRequest) -> Trace:
    return drafted(*request.param)


def test_the_ledger_equals_a_recount_from_the_text_and_adds_up(trace: Trace) -> None:
    told = accounting(trace)
    path = trace.sequences[0].steps
    # A drafted token has a probability by the model; what the model itself added has none noted.
    drafts = [step for step in trace.steps if "p" in step.notes]
    written = [trace.steps[id] for id in path]
    assert told.drafted == len(drafts)
    assert told.accepted == sum("p" in step.notes for step in written)
    assert told.resampled + told.bonus + told.plain == sum("p" not in s.notes for s in written)
    # Lost is what is not in the text: the first of a round was judged, what follows it was not.
    lost = [step for step in drafts if step.id not in path]
    first = [step for step in lost if step.parent is None or step.parent in path]
    ended = [s for s in first if s.notes["verdict"] == "ignored"]  # behind the end of the text
    assert told.rejected == len(first) - len(ended)
    assert told.ignored == len(lost) - told.rejected
    assert told.resampled == told.rejected, "in a chain each rejection is made good"
    assert told.tokens == len(trace.sequences[0].token_ids)
    assert told.faults == () and told.adds_up


def test_passes_are_those_of_the_ticks_and_one_for_the_prompt(trace: Trace) -> None:
    told = accounting(trace)
    known = trace.ticks[0].forward_passes
    assert told.target_passes == trace.forward_passes - known + 1
    assert told.passes_saved == told.tokens - told.target_passes
    assert told.compression == pytest.approx(told.tokens / told.target_passes)
    judging = [one for one in rounds(trace) if one.target_passes]
    assert sum(one.target_passes for one in judging) == told.target_passes - 1


def test_times_of_rounds_and_prompt_are_the_run(trace: Trace) -> None:
    told = rounds(trace)
    spent = sum(one.draft_ms + one.verify_ms for one in told)
    assert spent + trace.ticks[0].ms == pytest.approx(1000 * trace.seconds)
    for before, after in pairwise(told):
        assert after.began_ms == pytest.approx(before.ended_ms)
    assert all(one.draft_ms == 0 for one in told if not one.draft_passes)


def test_every_token_has_a_time_and_a_rounds_tokens_arrive_together(trace: Trace) -> None:
    there = arrivals(trace)
    assert len(there) == len(trace.sequences[0].token_ids) and list(there) == sorted(there)
    assert there[-1] == pytest.approx(sum(tick.ms for tick in trace.ticks) - prompt_ms(trace))
    sizes = Counter(there)
    assert [sizes[at] for at in sorted(sizes)] == [one.tokens for one in rounds(trace)]


def test_positions_count_from_one_along_a_chain_and_later_ones_need_the_earlier(
    trace: Trace,
) -> None:
    for one in rounds(trace):
        assert [each.position for each in one.drafted] == list(range(1, len(one.drafted) + 1))
        assert len(one.judged) <= len(one.accepted) + 1
    shares = by_position(rounds(trace))
    for before, after in pairwise(shares):
        assert after.judged <= before.accepted


def test_a_draw_below_p_over_q_is_why_a_drawn_token_was_kept() -> None:
    decided = [
        one
        for name in ("good", "bad", "exit")
        for each in rounds(drafted(name, True))
        for one in each.drafted
        if one.judged
    ]
    assert {one.verdict for one in decided} == {"accepted", "rejected"}
    for one in decided:
        assert one.draw is not None and one.bar is not None
        assert (one.draw < one.bar) == (one.verdict == "accepted")


def test_a_plain_run_has_no_rounds_and_one_pass_for_each_token() -> None:
    trace = plain("good")
    told = accounting(trace)
    assert rounds(trace) == () and not needs(trace)
    assert told.plain == told.tokens == told.target_passes and told.compression == 1
    assert told.adds_up and told.acceptance is None


def test_a_tree_of_drafts_is_judged_once_for_each_place() -> None:
    first, second, third = rounds(tree())
    assert [one.position for one in second.drafted] == [1, 1, 2, 2, 2]
    assert [one.token.text for one in second.accepted] == ["b", "d"]
    assert second.closing is not None and second.closing.kind == "bonus"
    assert second.judged == {1, 2} and third.judged == {1}
    told = accounting(tree())
    assert (told.drafted, told.accepted, told.rejected, told.ignored) == (7, 2, 3, 2)
    assert told.adds_up
    assert told.acceptance == pytest.approx(2 / 3), "two places kept of three judged"
    assert first.drafted == () and told.plain == 1


def test_what_heads_took_is_drafting_though_it_ran_in_the_tick_before() -> None:
    first, second, third = rounds(tree())
    assert first.target_passes == 0 and first.ended_ms == 0, "its token came with the prompt"
    assert (second.draft_ms, second.verify_ms) == (4.0, 40.0)
    assert (third.draft_ms, third.verify_ms, third.draft_passes) == (13.0, 30.0, 1)
    assert second.nodes == 6 and third.nodes == 3


def test_a_round_that_nobody_judged_leaves_its_tokens_ignored() -> None:
    told = accounting(cut_short(tree()))
    assert (told.drafted, told.ignored, told.tokens) == (7, 3, 4) and told.adds_up
    assert rounds(cut_short(tree()))[-1].closing is None


def test_a_ledger_that_does_not_add_up_says_so() -> None:
    whole = tree()
    [text] = whole.sequences
    lost = replace(text, token_ids=text.token_ids[:-1])
    assert accounting(replace(whole, sequences=(lost,))).faults == (
        "4 tokens were returned, and 5 were written",
    )
    assert not replace(accounting(whole), ignored=0).adds_up


def test_reading_a_prompt_that_was_known_takes_no_time() -> None:
    trace = tree()
    assert prompt_ms(trace) == 50.0 and arrivals(trace)[0] == 0.0
    known = replace(trace, ticks=(Tick(0, 0, 2.0), *trace.ticks[1:]))
    assert prompt_ms(known) == 0.0 and arrivals(known)[:2] == (2.0, 45.0)
