"""Graph calls: results equal direct calls, and runs share their waits."""

from functools import partial
from typing import Any

import pytest
import torch

from engine import processors
from engine.accel import graph_calls
from engine.accel.graph_calls import GraphCalls
from engine.accel.graphs import Graphs
from engine.accel.host_future import HostFuture
from engine.run import _top
from engine.trace.distributions import Stage
from engine.trie import backend
from engine.trie.backend import most
from playground import Playground
from tests.recordings import as_on_a_gpu
from tests.tiny import tiny


def test_a_cpu_computes_at_once() -> None:
    counts = []

    def work(scores: torch.Tensor, count: int) -> torch.Tensor:
        counts.append(count)
        return scores.topk(count).values

    future = GraphCalls()(work, torch.tensor([3.0, 1.0, 2.0]), count=2)
    assert future.result().tolist() == [3, 2] and counts == [2] and not future.pending


def test_all_runs_start_their_work_before_the_first_one_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab, runs = Playground(tiny("llama")), ["greedy", "sample", "beam_search", "contrastive_search"]
    expected = lab.compare("a few words", runs, max_new_tokens=6)
    events: list[str] = []

    class Slow(HostFuture):
        """A copy from the device that is still pending when it is returned."""

        pending = True

        def __init__(self, tensor: torch.Tensor) -> None:
            super().__init__(tensor)
            events.append("started")

        def result(self) -> torch.Tensor:
            events.append("waited")
            return super().result()

    class SlowSampled(Slow):
        def __init__(self, stages: list[Stage], tokens: torch.Tensor, noise: torch.Tensor) -> None:
            super().__init__(tokens)
            self.stages = stages
            self.noise = noise

    monkeypatch.setattr(graph_calls, "HostFuture", Slow)
    monkeypatch.setattr(processors, "Sampled", SlowSampled)
    traces = lab.compare("a few words", runs, max_new_tokens=6)
    assert [trace.steps for trace in traces] == [trace.steps for trace in expected]
    assert events[:8] == ["started"] * 4 + ["waited"] * 4


def test_the_best_tokens_of_a_pass_are_copied_once_for_all_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = ["greedy", ("beam_search", {"num_beams": 3}), ("contrastive_search", {"top_k": 4})]

    def texts(shared: dict[str, Any]) -> list[tuple[int, ...]]:
        traces = Playground(tiny("llama")).compare("a few words", runs, max_new_tokens=9, **shared)
        assert [trace.error for trace in traces] == [None] * 3
        return [trace.sequences[0].token_ids for trace in traces]

    copies: list[str] = []
    for shared in ({}, {"repetition_penalty": 1.3}):
        expected = texts(shared)
        with monkeypatch.context() as patch:
            as_on_a_gpu(patch)
            for name, module in (("tick", backend), ("run", graph_calls)):
                patch.setattr(module, "HostFuture", partial(_counted_copy, copies, name))
            assert texts(shared) == expected
        assert copies.count("tick") == (0 if shared else 9)
        copies.clear()


def _counted_copy(copies: list[str], name: str, *given: Any) -> HostFuture:
    copies.append(name)
    return HostFuture(*given)


def test_top_k_by_blocks_equals_top_k() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5 * 49_152 // 3)
    best = [scores.gather(-1, way(scores, 10)) for way in (_top, most)]
    assert torch.equal(*best)


def test_early_exits_run_as_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [("early_exit", {"assistant_early_exit": 1}), ("early_exit", {}), "greedy"]

    def recorded_steps() -> list[list[Any]]:
        traces = Playground(tiny("llama")).compare("a few words", choices, max_new_tokens=12)
        assert [trace.error for trace in traces] == [None] * len(choices)
        return [[(step.parent, step.token, step.event) for step in trace.steps] for trace in traces]

    expected, shapes = recorded_steps(), set[Any]()
    with monkeypatch.context() as patch:
        as_on_a_gpu(patch)
        play = Graphs.play

        def watched(self: Graphs[Any], work: Any, shape: Any, *inputs: torch.Tensor) -> Any:
            shapes.add(shape)
            return play(self, work, shape, *inputs)

        patch.setattr(Graphs, "play", watched)
        assert recorded_steps() == expected
    early = {shape[2] for shape in shapes if len(shape) == 3} - {None}
    assert {view.base_model.config.num_hidden_layers for view in early} == {1}
