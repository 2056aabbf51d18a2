"""The trace records the random numbers of a draw, and they lead to the token that was chosen."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from engine.trace import Candidate, Step, Trace
from engine.trace.gpu_statistics import BatchedStatistics
from playground import Playground
from tests.tiny import tiny

SAMPLED: list[tuple[str, dict[str, Any]]] = [
    ("sample", {"top_k": 0}),
    ("sample", {"top_k": 20, "temperature": 1.4}),
    ("sample", {"top_p": 0.9, "num_return_sequences": 3}),
    ("dola", {"do_sample": True}),
]


@pytest.fixture(params=["row by row", "in one graph"], autouse=True)
def statistics(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Statistics as a CPU computes them, and as a GPU does."""
    if request.param == "in one graph":
        monkeypatch.setattr(BatchedStatistics, "compute", BatchedStatistics.compute_in_one_graph)
    yield


def traces(*runs: Any, seed: int = 3, **shared: Any) -> list[Trace]:
    lab = Playground(tiny("llama"))
    found = lab.compare("a few words", runs, max_new_tokens=12, seed=seed, **shared)
    assert not any(trace.error for trace in found)
    return found


def candidates(step: Step) -> Sequence[Candidate]:
    assert step.distribution is not None
    return step.distribution.candidates


def winner(step: Step) -> int:
    """The token with the largest quotient of final probability and random number."""
    quotients = {}
    for candidate in candidates(step):
        assert candidate.noise is not None and candidate.noise > 0
        quotients[candidate.token.id] = candidate.final / candidate.noise
    return max(quotients, key=quotients.__getitem__)


@pytest.mark.parametrize("run", SAMPLED, ids=str)
def test_the_recorded_numbers_lead_to_the_drawn_token(run: tuple[str, dict[str, Any]]) -> None:
    [trace] = traces(run)
    assert len(trace.steps) >= 12
    for step in trace.steps:
        assert winner(step) == step.token.id


def test_the_recorded_numbers_are_those_of_the_generator() -> None:
    [trace] = traces(("sample", {"top_k": 0}), seed=11)
    vocabulary = trace.steps[0].distribution.kept  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(11)
    for step in trace.steps:
        drawn = torch.empty(1, vocabulary).exponential_(generator=generator)[0]
        for candidate in candidates(step):
            assert candidate.noise == pytest.approx(float(drawn[candidate.token.id]), rel=1e-5)


def test_a_token_after_a_draft_has_its_draw_and_a_verified_one_has_none() -> None:
    found = traces(*(("speculative", {"do_sample": True, "seed": seed}) for seed in range(4)))
    own = verified = 0
    for step in (step for trace in found for step in trace.steps):
        if step.notes["verdict"] in ("resampled", "bonus"):
            assert winner(step) == step.token.id
            own += 1
        elif step.notes["verdict"] == "accepted":
            assert all(candidate.noise is None for candidate in candidates(step))
            verified += 1
    assert own and verified


def test_a_draft_without_probabilities_is_verified_by_a_draw_at_each_token() -> None:
    [trace] = traces(("prompt_lookup", {"do_sample": True}))
    drawn = trace.path(trace.sequences[0].steps[-1])
    assert len(drawn) == 12
    for step in drawn:
        assert winner(step) == step.token.id


def test_beam_sample_draws_in_the_order_of_text_probability_and_random_number() -> None:
    [trace] = traces(("beam_sample", {"num_beams": 3}))
    for tick in range(len(trace.ticks)):
        steps = [step for step in trace.steps if step.tick == tick]
        quotients = {}
        for step in steps:
            [own] = [one for one in candidates(step) if one.token.id == step.token.id]
            assert own.noise is not None
            quotients[step.notes["order"]] = math.exp(step.notes["total"]) / own.noise
        assert list(quotients.values()) == sorted(quotients.values(), reverse=True)


def test_strategies_that_do_not_draw_record_no_random_numbers() -> None:
    for trace in traces("greedy", "beam_search", "contrastive_search", "dola", "speculative"):
        for step in trace.steps:
            assert all(candidate.noise is None for candidate in candidates(step))
        assert json.loads(trace.to_json())["noise"] == {}


def test_a_file_without_random_numbers_can_be_read() -> None:
    [trace] = traces(("sample", {"top_k": 5}))
    data = json.loads(trace.to_json())
    assert Trace.from_json(json.dumps(data)) == trace
    del data["noise"]
    earlier = Trace.from_json(json.dumps(data))
    assert all(one.noise is None for step in earlier.steps for one in candidates(step))
    assert [step.token for step in earlier.steps] == [step.token for step in trace.steps]
