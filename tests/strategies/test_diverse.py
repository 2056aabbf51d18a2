"""Diverse beam search: groups, their diversity penalties, and their trees."""

from typing import Any

import pytest

from engine.trace import Step, Trace
from playground import Playground, PlaygroundError
from tests.tiny import tiny

PROMPT = "Hello there"
ID = "diverse_beam_search"
SETTINGS: list[dict[str, Any]] = [
    {"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 1.5, "num_return_sequences": 6},
    {"num_beams": 4, "num_beam_groups": 4, "diversity_penalty": 0.5, "length_penalty": 2.0},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 5.0, "num_return_sequences": 4},
]
EARLY_ENDS: list[dict[str, Any]] = [  # settings that end texts early
    {"early_stopping": True, "sequence_bias": [[[2], 5.0]]},
    {"early_stopping": "never", "length_penalty": 1.5, "eos_token_id": [2, *range(60, 90)]},
]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    lab = Playground(tiny("gpt2"))
    choices = [(ID, settings) for settings in SETTINGS]
    return lab.compare(PROMPT, choices, max_new_tokens=24, suppress_tokens=[2])


def steps_of(trace: Trace, group: int, tick: int) -> list[Step]:
    return [s for s in trace.steps if s.notes["group"] == group and s.tick == tick]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5", "bart"])
@pytest.mark.parametrize("more", [{}, *EARLY_ENDS], ids=str)
def test_one_group_is_beam_search(kind: str, more: dict[str, Any]) -> None:
    own = {"num_beams": 4, "num_return_sequences": 4, **more}
    beam, diverse = Playground(tiny(kind)).compare(
        PROMPT, [("beam_search", own), (ID, {**own, "num_beam_groups": 1})], max_new_tokens=12
    )
    assert diverse.sequences == beam.sequences


def test_penalties_count_the_beams_of_earlier_groups_with_the_same_token(
    traces: list[Trace],
) -> None:
    paid = 0
    for trace in traces:
        for tick in range(len(trace.ticks)):
            taken: list[int] = []
            for group in range(trace.settings["num_beam_groups"]):
                steps = steps_of(trace, group, tick)
                for step in steps:
                    penalty = trace.settings["diversity_penalty"] * taken.count(step.token.id)
                    assert step.notes["penalty"] == pytest.approx(penalty)
                    paid += penalty > 0
                taken += [step.token.id for step in steps if step.event != "pruned"]
    assert paid > 20


def test_penalized_tokens_are_recorded_even_if_they_are_no_candidates(
    traces: list[Trace],
) -> None:
    without_candidate = 0
    for trace in traces:
        for tick in range(len(trace.ticks)):
            taken: list[int] = []
            for group in range(trace.settings["num_beam_groups"]):
                steps = steps_of(trace, group, tick)
                [avoided] = [s.notes["avoided"] for s in steps if "avoided" in s.notes]
                assert [token for token, _, _ in avoided] == list(dict.fromkeys(taken))
                for token, penalty, total in avoided:
                    count = taken.count(token)
                    assert penalty == trace.settings["diversity_penalty"] * count
                    totals = [s.notes["total"] for s in steps if s.token.id == token]
                    if totals and totals[0] is not None:
                        assert total == max(one for one in totals if one is not None)
                    without_candidate += not totals and total is not None
                taken += [step.token.id for step in steps if step.event != "pruned"]
    assert without_candidate > 20


def test_a_step_adds_its_log_probability_less_its_penalty(traces: list[Trace]) -> None:
    for trace in traces:
        for step in trace.steps:
            if step.notes["score"] is not None:
                assert step.notes["score"] == pytest.approx(step.raw - step.notes["penalty"])
            assert step.distribution.processors[0] == "hamming_diversity"


def test_scores_add_up_along_every_returned_text(traces: list[Trace]) -> None:
    for trace in traces:
        assert len(trace.sequences) == trace.settings["num_return_sequences"]
        scores = [sequence.score for sequence in trace.sequences]
        assert scores == sorted(scores, reverse=True)
        for sequence in trace.sequences:
            path = trace.path(sequence.steps[-1])
            total = sum(step.notes["score"] for step in path)
            assert path[-1].notes["total"] == pytest.approx(total, abs=1e-4)
            divisor = len(path) ** trace.settings["length_penalty"]
            assert sequence.score == pytest.approx(total / divisor, abs=1e-4)


def test_every_group_is_recorded_as_a_tree_of_its_own(traces: list[Trace]) -> None:
    for trace in traces:
        groups = trace.settings["num_beam_groups"]
        size = trace.settings["num_beams"] // groups
        for step in trace.steps:
            assert step.notes["beam"] // size == step.notes["group"]
            if step.parent is not None:
                parent = trace.steps[step.parent]
                assert parent.notes["group"] == step.notes["group"]
                assert parent.event == "chosen" and parent.tick == step.tick - 1
        for tick in range(len(trace.ticks)):
            for group in range(groups):
                steps = steps_of(trace, group, tick)
                kept = [s.notes["total"] for s in steps if s.event != "pruned"]
                lost = [s.notes["total"] for s in steps if s.event == "pruned"]
                assert (len(kept), len(lost)) == (size, size)
                assert min(kept) >= max(total for total in lost if total is not None)


def test_with_a_high_penalty_groups_differ_from_the_first_token_on() -> None:
    own = {"num_beams": 5, "num_beam_groups": 5, "diversity_penalty": 50.0}
    [trace] = Playground(tiny("gpt2")).compare(
        PROMPT, [(ID, {**own, "num_return_sequences": 5})], max_new_tokens=8
    )
    assert len({sequence.token_ids[0] for sequence in trace.sequences}) == 5


def test_a_finished_group_counts_as_writing_padding() -> None:
    [trace] = Playground(tiny("gpt2")).compare(
        PROMPT,
        [(ID, {"early_stopping": True, "num_return_sequences": 6})],
        max_new_tokens=30,
        sequence_bias=[[[2], 4.0], [[0], 4.0]],
    )
    over = max(step.tick for step in trace.steps if step.notes["group"] == 0)
    later = [s for s in trace.steps if s.tick > over and s.notes["group"] == 1]
    padding = [step.notes["penalty"] for step in later if step.token.id == 0]
    assert padding and set(padding) == {2.0}  # for two beams
    assert all(step.notes["penalty"] == 0 for step in later if step.token.id != 0)
    assert {sequence.stop.rule for sequence in trace.sequences} == {"end_token", "length"}


def test_prefix_functions_and_stop_strings_work_in_groups() -> None:
    lab = Playground(tiny("llama"))
    allowed, stopped = lab.compare(
        PROMPT,
        [
            (ID, {"prefix_allowed_tokens_fn": lambda row, ids: [5, 6, 7, 8 + len(ids) % 50]}),
            (ID, {"stop_strings": list("abe"), "num_return_sequences": 6}),
        ],
        max_new_tokens=10,
    )
    start = len(allowed.prompt_tokens)
    for at, token in enumerate(allowed.sequences[0].token_ids):
        assert token in [5, 6, 7, 8 + (start + at) % 50]
    rules = {sequence.stop.rule for sequence in stopped.sequences}
    assert "stop_string" in rules
    for sequence in stopped.sequences:
        assert not set(sequence.text[:-1]) & set("abe")


def test_live_updates_lead_to_the_best_text() -> None:
    updates = list(Playground(tiny("llama")).stream(PROMPT, [(ID, {})], max_new_tokens=8))
    trace = updates[-1].trace
    assert trace is not None and updates[-1].lead == trace.sequences[0].steps[-1]
    for update in updates[:-1]:
        tick = max(step.tick for step in update.steps)
        kept = [s for s in update.steps if s.tick == tick and s.event == "chosen"]
        assert update.lead == max(kept, key=lambda step: step.notes["normalized"]).id


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_beams": 5}, "num_beams is 5.* multiple of num_beam_groups, which is 3"),
        ({"num_beams": 2, "num_beam_groups": 4}, "num_beams is 2.*which is 4"),
        ({"num_beam_groups": 0}, "num_beam_groups is 0"),
        ({"diversity_penalty": 0.0}, "diversity_penalty is 0.*above 0"),
        ({"diversity_penalty": -1.0}, "diversity_penalty is -1"),
        ({"num_return_sequences": 7}, "num_return_sequences"),
    ],
)
def test_invalid_settings_are_rejected_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(PlaygroundError, match=named):
        Playground(tiny("llama")).compare(PROMPT, [(ID, settings)])
