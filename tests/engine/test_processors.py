"""Processors at work: what is recorded on a GPU is what each processor does when it is called."""

import pytest
import torch
from transformers.generation import logits_process as theirs

from engine.processors import Processing, _recordable, processed
from engine.sampling import clocks
from engine.trace.distributions import Stage

WARPERS = [
    theirs.TemperatureLogitsWarper(0.7),
    theirs.TopKLogitsWarper(40),
    theirs.TopPLogitsWarper(0.9),
    theirs.MinPLogitsWarper(0.02),
    theirs.TypicalLogitsWarper(0.8),
    theirs.EpsilonLogitsWarper(1e-3),
]


def test_recorded_processors_leave_what_they_leave_one_by_one() -> None:
    scores = torch.randn(3, 500) * 3
    processing, before = Processing(), scores.clone()
    for _ in range(3):
        expected = processed(WARPERS, [(1,)] * 3, scores, beams=1)
        recorded = processing.recorded(WARPERS, scores)
        assert [stage.name for stage in recorded] == [stage.name for stage in expected]
        for ours, theirs_ in zip(recorded, expected, strict=True):
            assert torch.equal(ours.scores, theirs_.scores)
    assert torch.equal(scores, before)


def test_what_is_drawn_in_one_launch_is_what_is_drawn_afterwards() -> None:
    scores, processing = torch.randn(3, 500) * 3, Processing()
    ours, theirs_ = (torch.Generator().manual_seed(4) for _ in range(2))
    for _ in range(3):
        expected = processing.drawn(WARPERS, [(1,)] * 3, scores, 1, theirs_)
        drawn = processing.draws.add(WARPERS, scores, clocks(scores, ours))
        assert torch.equal(drawn(), expected())
        same(drawn.stages, expected.stages)


def test_what_several_want_drawn_is_drawn_together_and_each_gets_his_own() -> None:
    processing = Processing()
    ours, theirs_ = (torch.Generator().manual_seed(4) for _ in range(2))
    wanted = [(WARPERS[:2], 1), (WARPERS[2:3], 3), (WARPERS, 2)]
    every = [(some, torch.randn(rows, 500) * 3) for some, rows in wanted]
    drawn = [processing.draws.add(some, scores, clocks(scores, ours)) for some, scores in every]
    drawn[1].begin()
    assert not processing.draws.waiting
    for own, (some, scores) in zip(drawn, every, strict=True):
        expected = processing.drawn(some, [(1,)] * len(scores), scores, 1, theirs_)
        assert torch.equal(own(), expected())
        same(own.stages, expected.stages)


def test_a_draw_that_fails_fails_for_all_who_wait_for_it_and_for_nobody_else() -> None:
    processing, scores = Processing(), torch.randn(1, 500)
    failing = [
        processing.draws.add(WARPERS[:4], scores, torch.ones(1, size)) for size in (500, 499)
    ]
    for own in failing:
        with pytest.raises(RuntimeError, match="499"):
            own()
    assert int(processing.draws.add(WARPERS[:4], scores, torch.ones(1, 500))()) == scores.argmax()


def same(stages: list[Stage], others: list[Stage]) -> None:
    for own, other in zip(stages, others, strict=True):
        assert own.name == other.name and torch.equal(own.scores, other.scores)


def test_only_processors_that_are_plain_numbers_are_recorded() -> None:
    assert _recordable(WARPERS)
    assert not _recordable([])
    assert not _recordable([*WARPERS, theirs.RepetitionPenaltyLogitsProcessor(1.2)])
    assert not _recordable([theirs.EtaLogitsWarper(0.1)])


def test_rows_of_different_lengths_go_together_where_nobody_looks_at_the_text() -> None:
    scores = torch.randn(3, 100)
    texts = [(1,), (1, 2), (1, 2, 3)]
    alone = [processed(WARPERS, [text], scores[[row]], beams=1) for row, text in enumerate(texts)]
    for at, stage in enumerate(processed(WARPERS, texts, scores, beams=1)):
        assert torch.equal(stage.scores, torch.cat([own[at].scores for own in alone]))
