"""Real traces of every family of strategies, and of everything a trace can have been through."""

import pytest

from engine.trace import Trace
from playground import Playground
from tests.visualizers.samples import forked, old, scored, unseen

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
    """One run of the embedded model per family, by strategy."""
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
    """Those, and a fork, an old trace, one with a step nobody saw, and texts given to be scored."""
    sample = real["sample"]
    extras = [forked(sample, 3), old(sample), unseen(sample, 2), unseen(sample, 0)]
    return [*real.values(), *extras, scored(sample), scored(sample, "sample", top_k=3)]
