"""Traces of every kind of strategy, and an example of every other input that figures declare."""

from typing import Any

import pytest

from engine.trace import Trace
from playground import Playground
from tests.visualizers.samples import forked, scored, uncaptured, version_1
from tests.visualizers.samples import inputs as sample_inputs

RUNS = (
    "greedy",
    ("sample", {"top_p": 0.9}),
    ("beam_search", {"num_beams": 3}),
    ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2}),
    ("constrained_beam_search", {"num_beams": 3, "force_words_ids": ["fox"]}),
    ("contrastive_search", {"top_k": 3}),
    "dola",
    ("early_exit", {"num_assistant_tokens": 3}),
)


@pytest.fixture(scope="session")
def real(embedded: Playground) -> dict[str, Trace]:
    """One run of the embedded model per kind of strategy, by strategy."""
    drafted = ("speculative", {"assistant_model": embedded.model, "num_assistant_tokens": 4})
    traces = [
        trace
        for runs in (RUNS[:5], [*RUNS[5:], drafted])
        for trace in embedded.compare("The quick brown", runs, max_new_tokens=8, seed=1)
    ]
    assert not [trace.error for trace in traces if trace.error]
    return {trace.strategy: trace for trace in traces}


@pytest.fixture(scope="session")
def every_kind(real: dict[str, Trace]) -> list[Trace]:
    """Those, a fork, a trace of version 1, traces with an uncaptured step, and scored texts."""
    sample = real["sample"]
    extras = [forked(sample, 3), version_1(sample), uncaptured(sample, 2), uncaptured(sample, 0)]
    return [*real.values(), *extras, scored(sample), scored(sample, "sample", top_k=3)]


@pytest.fixture(scope="session")
def inputs() -> dict[type, list[Any]]:
    """Examples of the inputs that figures of other data than traces declare, by type."""
    return sample_inputs()


@pytest.fixture(scope="session")
def strategy_runs(embedded: Playground) -> list[Trace]:
    """Real runs of the strategies that have figures of their own."""
    runs = [
        "contrastive_search",
        ("dola", {"repetition_penalty": 1.2}),
        ("diverse_beam_search", {"num_return_sequences": 3, "diversity_penalty": 2.0}),
        ("constrained_beam_search", {"force_words": ["river", "of art"], "num_beams": 4}),
    ]
    return embedded.compare("The capital of France is", runs, max_new_tokens=10, seed=0)
