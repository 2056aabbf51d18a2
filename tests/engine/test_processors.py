"""Processors replayed as a graph, or batched with other draws, equal direct calls."""

import pytest
import torch
from transformers.generation import logits_process as library

from engine.accel.graph_calls import GraphCalls
from engine.processors import are_recordable, process_directly, sample
from engine.sampling import exponential_noise
from engine.trace.distributions import Stage

WARPERS = [
    library.TemperatureLogitsWarper(0.7),
    library.TopKLogitsWarper(40),
    library.TopPLogitsWarper(0.9),
    library.MinPLogitsWarper(0.02),
    library.TypicalLogitsWarper(0.8),
    library.EpsilonLogitsWarper(1e-3),
]


def assert_equal(stages: list[Stage], others: list[Stage]) -> None:
    for own, other in zip(stages, others, strict=True):
        assert own.name == other.name and torch.equal(own.scores, other.scores)


def test_processors_in_a_graph_give_the_scores_of_direct_calls() -> None:
    scores = torch.randn(3, 500) * 3
    calls, before = GraphCalls(), scores.clone()
    for _ in range(3):
        expected = process_directly(WARPERS, [(1,)] * 3, scores, beams=1)
        assert_equal(calls.process(WARPERS, scores), expected)
    assert torch.equal(scores, before)


def test_a_draw_in_a_graph_equals_a_draw_without_one() -> None:
    scores, calls = torch.randn(3, 500) * 3, GraphCalls()
    ours, theirs = (torch.Generator().manual_seed(4) for _ in range(2))
    for _ in range(3):
        expected = sample(WARPERS, [(1,)] * 3, scores, 1, theirs, calls)
        drawn = calls.sample(WARPERS, scores, exponential_noise(scores, ours))
        assert torch.equal(drawn.result(), expected.result())
        assert_equal(drawn.stages, expected.stages)


def test_draws_of_several_runs_are_launched_together_and_each_gets_its_own_tokens() -> None:
    calls = GraphCalls()
    ours, theirs = (torch.Generator().manual_seed(4) for _ in range(2))
    sizes = [(WARPERS[:2], 1), (WARPERS[2:3], 3), (WARPERS, 2)]
    inputs = [(some, torch.randn(rows, 500) * 3) for some, rows in sizes]
    draws = [calls.sample(some, rows, exponential_noise(rows, ours)) for some, rows in inputs]
    draws[1].start()
    assert not calls.waiting
    for draw, (some, scores) in zip(draws, inputs, strict=True):
        expected = sample(some, [(1,)] * len(scores), scores, 1, theirs, calls)
        assert torch.equal(draw.result(), expected.result())
        assert_equal(draw.stages, expected.stages)


def test_a_failing_launch_fails_every_draw_in_it_and_no_later_one() -> None:
    calls, scores = GraphCalls(), torch.randn(1, 500)
    failing = [calls.sample(WARPERS[:4], scores, torch.ones(1, size)) for size in (500, 499)]
    for draw in failing:
        with pytest.raises(RuntimeError, match="499"):
            draw.result()
    assert int(calls.sample(WARPERS[:4], scores, torch.ones(1, 500)).result()) == scores.argmax()


def test_only_processors_whose_state_is_numbers_are_recordable() -> None:
    assert are_recordable(WARPERS)
    assert not are_recordable([])
    assert not are_recordable([*WARPERS, library.RepetitionPenaltyLogitsProcessor(1.2)])
    assert not are_recordable([library.EtaLogitsWarper(0.1)])


def test_texts_of_different_lengths_are_processed_together_where_no_processor_reads_them() -> None:
    scores = torch.randn(3, 100)
    texts = [(1,), (1, 2), (1, 2, 3)]
    alone = [
        process_directly(WARPERS, [text], scores[[row]], beams=1) for row, text in enumerate(texts)
    ]
    for number, stage in enumerate(process_directly(WARPERS, texts, scores, beams=1)):
        assert torch.equal(stage.scores, torch.cat([own[number].scores for own in alone]))
