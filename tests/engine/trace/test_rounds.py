"""Rounds of speculative runs against counts by hand."""

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


def test_the_accounting_equals_a_recount_and_adds_up(trace: Trace) -> None:
    found = accounting(trace)
    path = trace.sequences[0].steps
    # Only drafted tokens have a note of the model's probability p.
    drafts = [step for step in trace.steps if "p" in step.notes]
    written = [trace.steps[id] for id in path]
    assert found.drafted == len(drafts)
    assert found.accepted == sum("p" in step.notes for step in written)
    assert found.resampled + found.bonus + found.plain == sum("p" not in s.notes for s in written)
    # Not in the text: the first such draft of a round was rejected, those after it were ignored.
    discarded = [step for step in drafts if step.id not in path]
    first = [step for step in discarded if step.parent is None or step.parent in path]
    ended = [s for s in first if s.notes["verdict"] == "ignored"]  # after the end of the text
    assert found.rejected == len(first) - len(ended)
    assert found.ignored == len(discarded) - found.rejected
    assert found.resampled == found.rejected, "in a chain each rejected token is resampled"
    assert found.tokens == len(trace.sequences[0].token_ids)
    assert found.faults == () and found.adds_up


def test_passes_are_those_of_the_ticks_and_one_for_the_prompt(trace: Trace) -> None:
    found = accounting(trace)
    known = trace.ticks[0].forward_passes
    assert found.target_passes == trace.forward_passes - known + 1
    assert found.passes_saved == found.tokens - found.target_passes
    assert found.compression == pytest.approx(found.tokens / found.target_passes)
    verifying = [one for one in rounds(trace) if one.target_passes]
    assert sum(one.target_passes for one in verifying) == found.target_passes - 1


def test_times_of_prompt_and_rounds_add_up_to_the_run(trace: Trace) -> None:
    found = rounds(trace)
    spent = sum(one.draft_ms + (one.verify_ms or 0.0) for one in found)
    assert spent + trace.ticks[0].ms == pytest.approx(1000 * trace.seconds)
    for before, after in pairwise(found):
        assert after.began_ms == pytest.approx(before.ended_ms)
    assert all(one.draft_ms == 0 for one in found if not one.draft_passes)


def test_tokens_of_one_round_arrive_together(trace: Trace) -> None:
    there = arrivals(trace)
    assert len(there) == len(trace.sequences[0].token_ids) and list(there) == sorted(there)
    assert there[-1] == pytest.approx(sum(tick.ms for tick in trace.ticks) - prompt_ms(trace))
    sizes = Counter(there)
    assert [sizes[at] for at in sorted(sizes)] == [one.tokens for one in rounds(trace)]


def test_a_later_position_is_verified_only_if_the_earlier_ones_were_accepted(
    trace: Trace,
) -> None:
    for one in rounds(trace):
        assert [each.position for each in one.drafted] == list(range(1, len(one.drafted) + 1))
        assert len(one.verified) <= len(one.accepted) + 1
    shares = by_position(rounds(trace))
    for before, after in pairwise(shares):
        assert after.verified <= before.accepted


def test_a_token_is_accepted_if_its_draw_is_below_p_over_q() -> None:
    decided = [
        one
        for name in ("good", "bad", "exit")
        for each in rounds(drafted(name, True))
        for one in each.drafted
        if one.verified
    ]
    assert {one.verdict for one in decided} == {"accepted", "rejected"}
    for one in decided:
        assert one.draw is not None and one.acceptance_probability is not None
        assert (one.draw < one.acceptance_probability) == (one.verdict == "accepted")


def test_a_plain_run_has_no_rounds_and_one_pass_for_each_token() -> None:
    trace = plain("good")
    found = accounting(trace)
    assert rounds(trace) == () and not needs(trace)
    assert found.plain == found.tokens == found.target_passes and found.compression == 1
    assert found.adds_up and found.acceptance is None


def test_positions_of_a_draft_tree_are_its_depths() -> None:
    first, second, third = rounds(tree())
    assert [one.position for one in second.drafted] == [1, 1, 2, 2, 2]
    assert [one.token.text for one in second.accepted] == ["b", "d"]
    assert second.closing is not None and second.closing.kind == "bonus"
    assert second.verified == {1, 2} and third.verified == {1}
    found = accounting(tree())
    assert (found.drafted, found.accepted, found.rejected, found.ignored) == (7, 2, 3, 2)
    assert found.adds_up
    assert found.acceptance == pytest.approx(2 / 3), "two positions accepted of three verified"
    assert first.drafted == () and found.plain == 1


def test_draft_heads_count_as_drafting_although_they_ran_in_the_tick_before() -> None:
    first, second, third = rounds(tree())
    assert first.target_passes == 0 and first.ended_ms == 0, "its token is the prompt's"
    assert (second.draft_ms, second.verify_ms) == (4.0, 40.0)
    assert (third.draft_ms, third.verify_ms, third.draft_passes) == (13.0, 30.0, 1)
    assert second.nodes == 6 and third.nodes == 3


def test_verification_time_is_what_was_measured_however_long_the_heads_took() -> None:
    trace = tree()
    # A GPU may draft for longer than the host waited: the tick is shorter than the draft.
    slow = [
        replace(step, notes={**step.notes, "draft_ms": 60.0}) if "draft_ms" in step.notes else step
        for step in trace.steps
    ]
    _, second, third = rounds(replace(trace, steps=tuple(slow)))
    assert (second.verify_ms, third.verify_ms) == (40.0, 30.0)


def test_verification_time_is_left_out_where_it_was_not_measured() -> None:
    trace = tree()
    earlier = tuple(replace(tick, decided_ms=None) for tick in trace.ticks)
    _, second, third = rounds(replace(trace, ticks=earlier))
    assert second.verify_ms is None, "the next round's heads ran in the same tick"
    assert third.verify_ms == 30.0, "the last tick is all verification"
    assert (second.ended_ms, third.ended_ms) == (43.0, 83.0)


def test_tokens_of_an_interrupted_round_are_ignored() -> None:
    found = accounting(cut_short(tree()))
    assert (found.drafted, found.ignored, found.tokens) == (7, 3, 4) and found.adds_up
    assert rounds(cut_short(tree()))[-1].closing is None


def test_an_accounting_that_does_not_add_up_reports_faults() -> None:
    whole = tree()
    [text] = whole.sequences
    discarded = replace(text, token_ids=text.token_ids[:-1])
    assert accounting(replace(whole, sequences=(discarded,))).faults == (
        "4 tokens were returned, but 5 were generated",
    )
    assert not replace(accounting(whole), ignored=0).adds_up


def test_a_cached_prompt_takes_no_time() -> None:
    trace = tree()
    assert prompt_ms(trace) == 50.0 and arrivals(trace)[0] == 0.0
    known = replace(trace, ticks=(Tick(0, 0, 2.0), *trace.ticks[1:]))
    assert prompt_ms(known) == 0.0 and arrivals(known)[:2] == (2.0, 45.0)
