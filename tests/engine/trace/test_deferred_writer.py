"""Deferred writing, as on a GPU, gives the same traces in the same order."""

import gc
import pickle
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from engine.run_control import RunControl
from engine.trace import Trace, deferred_writer
from engine.trace.distributions import observations
from engine.trace.gpu_statistics import BatchedStatistics
from engine.trace.statistics import KnownStatistics, StatisticsRequest
from engine.trace.token_text import IdDecoder
from engine.trie.backend import Best, NodeOutput, OutputRow
from playground import Playground
from tests.recordings import as_on_a_gpu
from tests.tiny import tiny

CHOICES = [
    ("greedy", {"repetition_penalty": 1.2}),
    ("sample", {"temperature": 0.8, "top_k": 20, "num_return_sequences": 2}),
    ("beam_search", {"num_beams": 4}),
    ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}),
    ("contrastive_search", {"top_k": 3, "penalty_alpha": 0.6}),
    ("prompt_lookup", {}),
    ("early_exit", {"assistant_early_exit": 1}),
    ("sample", {"watermarking_config": {"greenlist_ratio": 0.5}}),
]


def timeless(traces: list[Trace]) -> list[Trace]:
    return [
        replace(trace, ticks=tuple(replace(tick, ms=0.0, decided_ms=None) for tick in trace.ticks))
        for trace in traces
    ]


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_writer, "is_asynchronous", lambda device: True)


@pytest.mark.parametrize("choices", [CHOICES[:5], CHOICES[5:]])
def test_deferred_and_immediate_writing_give_equal_traces(
    choices: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    def traces() -> list[Trace]:
        lab = Playground(tiny("llama"))
        return timeless(lab.compare("a b a b", choices, max_new_tokens=12, seed=3))

    at_once = traces()
    monkeypatch.setattr(deferred_writer, "is_asynchronous", lambda device: True)
    assert traces() == at_once


def test_updates_come_in_order_and_end_with_the_trace(deferred: None) -> None:
    steps: dict[int, dict] = {}
    for update in Playground(tiny("llama")).stream("a b", CHOICES[:5], max_new_tokens=8, seed=1):
        own = steps.setdefault(update.run, {})
        own |= {step.id: step for step in update.steps}
        assert sorted(own) == list(range(len(own)))
        assert update.lead is None or update.lead in own
        if update.trace:
            assert tuple(own.values()) == update.trace.steps


def test_stepping_shows_each_step_before_the_next_one_runs(
    deferred: None,
) -> None:
    pace, seen = RunControl(paused=True, timeout=20), []

    def watch() -> None:
        lab = Playground(tiny("llama"))
        for update in lab.stream("a b", ["greedy"], max_new_tokens=4, stop=pace):
            seen.extend(step.token.id for step in update.steps)
            shown.release()

    shown = threading.Semaphore(0)
    thread = threading.Thread(target=watch)
    thread.start()
    for expected in range(1, 5):
        assert shown.acquire(timeout=20)
        assert len(seen) >= expected
        pace.step()
    pace.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_failure_of_the_statistics_ends_only_its_run(
    deferred: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = BatchedStatistics.compute

    def fails(self, requests, ready=None):
        if any(request.stages for request in requests):
            raise MemoryError("out of memory")
        return compute(self, requests, ready)

    monkeypatch.setattr(BatchedStatistics, "compute", fails)
    lab = Playground(tiny("llama"))
    good, bad = lab.compare("a b", ["greedy", ("sample", {"top_k": 5})], max_new_tokens=5, seed=1)
    assert good.error is None and len(good.sequences[0].token_ids) > 0
    assert bad.error is not None and "out of memory" in bad.error and bad.steps == ()


def test_a_stopped_run_has_all_steps_it_decided(deferred: None) -> None:
    ticks = iter(range(100))

    class StopAtTick3:
        def is_set(self) -> bool:
            return next(ticks) >= 3

    updates = list(
        Playground(tiny("llama")).stream("a b", CHOICES[:3], max_new_tokens=50, stop=StopAtTick3())
    )
    for trace in [update.trace for update in updates if update.trace]:
        assert trace.stop.rule == "cancelled" and len(trace.sequences[0].token_ids) == 4


@pytest.mark.parametrize(
    "runs",
    [
        ["greedy", ("sample", {"top_k": 20}), ("prompt_lookup", {})],
        [("diverse_beam_search", {"num_beams": 6, "num_beam_groups": 3})],
        [("sample", {"top_k": 20}), ("sample", {"top_p": 0.9}), ("beam_search", {"num_beams": 3})],
    ],
)
def test_statistics_are_computed_in_few_shapes(runs: list, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(BatchedStatistics, "compute", BatchedStatistics.compute_in_one_graph)
    lab = Playground(tiny("llama"))
    traces = lab.compare("a few words", runs, max_new_tokens=40)
    assert not any(trace.error for trace in traces)
    graphs = lab._backends.trie.statistics._graphs
    # One at the start, one when a text ends, and two or three between.
    assert graphs and len(graphs._seen) <= 10


KNOWN = ["greedy", ("beam_search", {"num_beams": 5}), ("contrastive_search", {"top_k": 4})]


def test_statistics_known_to_the_host_are_not_requested_again(deferred: None) -> None:
    lab = Playground(tiny("llama"))
    compute = Mock(wraps=lab._backends.trie.statistics.compute)
    lab._backends.trie.statistics.compute = compute
    lab.compare("a few words", KNOWN, max_new_tokens=12)
    assert not compute.called
    lab.compare("a few words", [*KNOWN, ("sample", {"top_k": 5})], max_new_tokens=12)
    assert {len(request.stages) for call in compute.call_args_list for request in call.args[0]} == {
        1
    }


def test_known_statistics_include_picks_beyond_the_most_probable() -> None:
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(1)) * 3
    output = NodeOutput.of(logits)
    output_rows = [OutputRow(output, row) for row in range(2)]
    order = logits.argsort(-1, descending=True).tolist()
    picks = [(0, order[0][0]), (1, order[1][40]), (1, order[1][3]), (1, order[1][200])]
    further = {
        (row, token): (float(output.log_probs[row, token]), order[row].index(token))
        for row, token in picks[1:]
    }
    known = KnownStatistics(Best.of(output.summary), further)
    assert known.cover(picks) and not known.cover([(0, order[0][40])])
    token_decoder = IdDecoder()
    [computed] = BatchedStatistics().compute([StatisticsRequest(output_rows, [], picks)])
    ours = observations(lambda: known.statistics(picks), [], picks, 300, token_decoder)
    theirs = observations(computed, [], picks, 300, token_decoder)
    assert [one.rank for one in ours] == [1, 41, 4, 201]
    assert ours == theirs


def living_outputs() -> int:
    """Count the model outputs in memory."""
    gc.collect()
    return sum(isinstance(one, NodeOutput) for one in gc.get_objects())


def test_an_unread_trace_keeps_no_model_output_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(BatchedStatistics, "compute", BatchedStatistics.compute_in_one_graph)
    lab, before = Playground(tiny("llama")), living_outputs()
    traces = lab.compare("a few words", [*KNOWN, ("sample", {"top_k": 5})], max_new_tokens=30)
    # Those of the prompt, of recorded graphs, and of the last statistics.
    assert living_outputs() - before <= 10
    assert [len(trace.steps) for trace in traces] == [len([*trace.steps]) for trace in traces]


def test_an_unread_trace_can_be_pickled() -> None:
    [trace] = Playground(tiny("llama")).compare("a few words", ["sample"], max_new_tokens=3)
    assert pickle.loads(pickle.dumps(trace)) == trace
