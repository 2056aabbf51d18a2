"""Beam search: recorded parents, scores and totals are consistent."""

from collections import Counter
from typing import Any

import pytest
import torch

from engine.trace import Trace
from playground import Playground
from tests.tiny import tiny

KINDS: list[dict[str, Any]] = [
    {"num_beams": 4, "num_return_sequences": 4},
    {"num_beams": 5, "num_return_sequences": 5, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 3, "num_return_sequences": 3, "length_penalty": -0.5, "early_stopping": "never"},
    {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.3, "eos_token_id": [2, 9]},
]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    lab = Playground(tiny("llama"))
    choices = [("beam_search", kind) for kind in KINDS]
    choices += [("beam_sample", {**KINDS[0], "top_k": 20})]
    return lab.compare("Hello there", choices, max_new_tokens=16, seed=5)


def test_scores_and_length_penalty_give_the_returned_score(traces: list[Trace]) -> None:
    for trace in traces:
        penalty = trace.settings["length_penalty"]
        for sequence in trace.sequences:
            path = trace.path(sequence.steps[-1])
            total = sum(step.notes["score"] for step in path)
            assert path[-1].notes["total"] == pytest.approx(total, abs=1e-4)
            assert sequence.score == pytest.approx(total / len(path) ** penalty, abs=1e-4)
            assert sequence.score == pytest.approx(path[-1].notes["normalized"], abs=1e-4)
        assert [s.score for s in trace.sequences] == sorted(
            (s.score for s in trace.sequences), reverse=True
        )


def test_without_processors_the_score_is_the_sum_of_the_models_log_probabilities(
    traces: list[Trace],
) -> None:
    model = tiny("llama")
    ids = model.tokenizer("Hello there").input_ids
    for sequence in traces[0].sequences:
        whole = torch.tensor([ids + list(sequence.token_ids)])
        with torch.no_grad():
            log_probs = model.module(whole).logits[0].log_softmax(-1)
        positions = range(len(ids) - 1, whole.shape[1] - 1)
        total = sum(float(log_probs[at, whole[0, at + 1]]) for at in positions)
        assert sequence.score == pytest.approx(total / len(sequence.token_ids), abs=1e-4)


def test_every_step_records_all_candidates_and_their_outcome(traces: list[Trace]) -> None:
    for trace in traces:
        beams = trace.settings["num_beams"]
        ends = len(trace.settings.get("eos_token_id", [2]))
        for tick in range(len(trace.ticks)):
            steps = [step for step in trace.steps if step.tick == tick]
            assert len(steps) == max(2, 1 + ends) * beams
            events = Counter(step.event for step in steps)
            if tick < len(trace.ticks) - 1:
                assert events["chosen"] == beams
            assert sorted(step.notes["order"] for step in steps) == list(range(len(steps)))


def test_only_kept_beams_have_children(traces: list[Trace]) -> None:
    for trace in traces:
        for step in trace.steps:
            if step.parent is not None:
                assert trace.steps[step.parent].event == "chosen"
                assert trace.steps[step.parent].tick == step.tick - 1


def test_kept_candidates_are_the_best_that_did_not_end(traces: list[Trace]) -> None:
    for trace in traces[:-1]:  # ranked, not drawn
        for tick in range(len(trace.ticks) - 1):
            steps = [step for step in trace.steps if step.tick == tick]
            kept = [s.notes["total"] for s in steps if s.event == "chosen"]
            lost = [s.notes["total"] for s in steps if s.event == "pruned" and s.token.id != 2]
            assert min(kept) >= max(lost, default=-1e9) - 1e-6


def test_beam_search_with_one_beam_equals_greedy() -> None:
    greedy, beam = Playground(tiny("gpt2")).compare(
        "Hello there", ["greedy", ("beam_search", {"num_beams": 1})], max_new_tokens=20
    )
    assert beam.sequences[0].token_ids == greedy.sequences[0].token_ids


def test_the_trace_names_the_rule_that_ended_the_search() -> None:
    lab = Playground(tiny("llama"))
    easy = {"num_beams": 2, "sequence_bias": [[[2], 12.0]]}
    early, no_improvement, long = lab.compare(
        "Hello there",
        [
            ("beam_search", {**easy, "early_stopping": True}),
            ("beam_search", easy),
            ("beam_search", {"num_beams": 2, "min_new_tokens": 6}),
        ],
        max_new_tokens=6,
    )
    assert early.stop.rule == "early_stopping"
    assert no_improvement.stop.rule == "no_improvement"
    assert long.stop.rule == "length"


def test_live_updates_follow_the_leading_beam() -> None:
    lab = Playground(tiny("llama"))
    leads = []
    for update in lab.stream("Hello there", [("beam_search", {"num_beams": 4})], max_new_tokens=10):
        leads.append(update.lead)
        if update.trace:
            assert update.lead == update.trace.sequences[0].steps[-1]
    assert len(set(leads)) > 5
