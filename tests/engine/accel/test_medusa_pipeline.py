"""The Medusa pipeline gives the same texts and steps as separate rounds, and frees its memory."""

import gc
import logging
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from engine.accel import accelerated_pool
from engine.accel import medusa_pipeline as pipeline
from engine.accel.medusa_pipeline import MedusaPipeline
from engine.drafting import draft_tree
from engine.drafting.heads import Heads
from engine.models.model import Model
from engine.run_control import RunControl
from engine.trace import Trace
from playground import Limits, Playground
from tests.heads import bigram_model, exact_heads, random_heads
from tests.recordings import as_on_a_gpu

PROMPT, LENGTH = "Hello there, hello", 40
LAST = 5  # final rounds, which may draft past the length limit
HEADS: dict[str, tuple[Model, Heads]] = {
    "right": (bigram_model(), exact_heads(bigram_model())),
    "noisy": (bigram_model(), exact_heads(bigram_model(), noise=1.5)),
    "nearly right": (bigram_model(0.05), exact_heads(bigram_model(0.05))),
    "random": (bigram_model(), random_heads(bigram_model(), depth=4, kept=100)),
}
STEPS = pipeline.IN_TORCH._asdict()
SIZES: list[dict[str, Any]] = [
    {"medusa_tokens": 1},
    {"medusa_tokens": 20},
    {"medusa_tokens": 20, "medusa_threshold": 0.05},
    {"medusa_tokens": 40, "medusa_depth": 2},
    {"medusa_tokens": 63},
]


@pytest.fixture
def drafts_ready(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Run as on a GPU; collects for each draft whether the pipeline had it ready."""
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(draft_tree, "_threshold", lambda *_: -math.inf)  # shapes are fixed there
    was_ready, take_ready = list[bool](), MedusaPipeline.take_ready

    def watched(self: MedusaPipeline, *args: Any) -> Any:
        ready = take_ready(self, *args)
        was_ready.append(ready is not None)
        return ready

    monkeypatch.setattr(MedusaPipeline, "take_ready", watched)
    return was_ready


def lab_with(how: str, **limits: Any) -> Playground:
    model, heads = HEADS[how]
    return Playground(model, heads=heads, limits=Limits(draft_tokens=64, **limits))


def medusa(lab: Playground, size: dict[str, Any], **shared: Any) -> Trace:
    shared = {"max_new_tokens": LENGTH, "eos_token_id": 2, **shared}
    [trace] = lab.compare(PROMPT, [("medusa", size)], **shared)
    assert trace.error is None
    return trace


def step_notes(trace: Trace) -> list[tuple[Any, ...]]:
    """All steps except those of the last rounds."""
    until = max(step.notes["round"] for step in trace.steps) - LAST
    return [
        (step.parent, step.token, step.event, *map(step.notes.get, ("verdict", "depth", "round")))
        for step in trace.steps
        if step.notes["round"] <= until
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", HEADS)
def test_text_and_steps_equal_those_without_the_pipeline(
    how: str, size: dict[str, Any], drafts_ready: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MedusaPipeline, "possible", lambda *_: False)
        waited = medusa(lab_with(how), size)
    assert drafts_ready and not any(drafts_ready)
    drafts_ready.clear()
    trace = medusa(lab_with(how), size)
    assert drafts_ready and all(drafts_ready)
    assert (trace.text, trace.stop) == (waited.text, waited.stop)
    assert step_notes(trace) == step_notes(waited)
    assert trace.forward_passes == waited.forward_passes
    for ours, theirs in zip(trace.steps[:30], waited.steps[:30], strict=True):
        numbers = [
            (*map(step.notes.get, ("p", "q")), step.raw, step.rank) for step in (ours, theirs)
        ]
        assert numbers[0] == tuple(
            each if each is None else pytest.approx(each, rel=1e-4, abs=1e-5) for each in numbers[1]
        )


def test_every_round_counts_the_nodes_it_evaluates(drafts_ready: list[bool]) -> None:
    trace = medusa(lab_with("noisy"), {"medusa_tokens": 20})
    trees: dict[int, int] = {}
    for step in trace.steps:
        trees[step.notes["round"]] = trees.get(step.notes["round"], 0) + 1
    read = [tick.nodes for tick in trace.ticks if tick.forward_passes]
    assert read[1:] == list(trees.values())[1:]  # the first pass is over the prompt


@pytest.mark.parametrize(
    "shared", [{"stop_strings": "e"}, {"eos_token_id": [*range(40, 90)]}, {"max_new_tokens": 3}]
)
def test_a_finished_run_frees_its_cache_positions(
    shared: dict[str, Any], drafts_ready: list[bool]
) -> None:
    lab = lab_with("right")
    backend = lab._backends.trie.backend
    medusa(lab, SIZES[1], max_new_tokens=1)
    gc.collect()
    before = backend.used
    trace = medusa(lab, SIZES[1], **shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MedusaPipeline, "possible", lambda *_: False)
        assert medusa(lab, SIZES[1], **shared).text == trace.text
    gc.collect()
    assert backend.used == before


def test_a_stopped_run_frees_its_cache_positions(drafts_ready: list[bool]) -> None:
    lab, ticks = lab_with("noisy"), iter(range(100))
    medusa(lab, SIZES[1], max_new_tokens=1)
    gc.collect()
    before = lab._backends.trie.backend.used

    class StopAtTick4:
        def is_set(self) -> bool:
            return next(ticks) >= 4

    way, shared = [("medusa", SIZES[1])], {"max_new_tokens": LENGTH, "stop": StopAtTick4()}
    *_, last = lab.stream(PROMPT, way, **shared)
    assert last.trace and last.trace.stop.rule == "cancelled" and any(drafts_ready)
    del last
    gc.collect()
    assert lab._backends.trie.backend.used == before


def test_stepping_reports_every_round_before_the_next(drafts_ready: list[bool]) -> None:
    seen: list[int] = []

    class WatchingControl(RunControl):
        def is_set(self) -> bool:
            rounds.append(max(seen, default=0))
            return False

    rounds: list[int] = []
    lab, shared = lab_with("noisy"), {"max_new_tokens": 20, "eos_token_id": 2}
    for update in lab.stream(PROMPT, [("medusa", SIZES[1])], stop=WatchingControl(), **shared):
        seen += [step.notes["round"] for step in update.steps]
    assert rounds == list(range(1, len(rounds) + 1)) and any(drafts_ready)


@pytest.mark.parametrize(
    ("choices", "shared"),
    [
        (["greedy", ("medusa", SIZES[1])], {}),
        ([("medusa", SIZES[1])], {"repetition_penalty": 1.2}),
        ([("medusa", {**SIZES[1], "do_sample": True})], {}),
    ],
    ids=["other run", "processors", "sampling"],
)
def test_other_runs_processors_and_sampling_disable_the_pipeline(
    choices: list[Any], shared: dict[str, Any], drafts_ready: list[bool]
) -> None:
    traces = lab_with("noisy").compare(PROMPT, choices, max_new_tokens=12, **shared)
    assert [trace.error for trace in traces] == [None] * len(choices)
    assert drafts_ready and not any(drafts_ready)


def test_a_full_cache_disables_the_pipeline_for_a_round(
    drafts_ready: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerated_pool, "CAPACITY", 32)
    expected = medusa(lab_with("noisy"), SIZES[1]).text
    drafts_ready.clear()
    assert medusa(lab_with("noisy", positions=95), SIZES[1]).text == expected
    assert any(drafts_ready) and not all(drafts_ready)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Stand-ins for the Triton kernels, which compute in torch."""
    ours = SimpleNamespace(**{name: Mock(wraps=step) for name, step in STEPS.items()})
    monkeypatch.setattr(pipeline, "kernels", lambda name, there: ours)
    pipeline._steps.cache_clear()
    yield ours
    pipeline._steps.cache_clear()


def test_kernels_that_agree_with_torch_are_used_in_every_round(
    kernels: SimpleNamespace, drafts_ready: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    medusa(lab_with("noisy"), SIZES[1])
    assert not caplog.records
    for step in STEPS:
        assert getattr(kernels, step).call_count > len(drafts_ready) > 1  # and once to check them


@pytest.mark.parametrize("wrong", ["fails", "is wrong"])
@pytest.mark.parametrize("step", STEPS)
def test_kernels_that_differ_from_torch_are_not_used_and_one_warning_says_why(
    step: str,
    wrong: str,
    kernels: SimpleNamespace,
    drafts_ready: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*given: Any) -> Any:
        if wrong == "fails":
            raise RuntimeError("an old card")
        right = STEPS[step](*given)
        return right._replace(packed=right.packed + 1) if step == "walk" else right + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "kernels", lambda name, there: None)
        expected = step_notes(medusa(lab_with("noisy"), SIZES[1]))
    pipeline._steps.cache_clear()
    setattr(kernels, step, Mock(side_effect=broken))
    with caplog.at_level(logging.WARNING):
        traces = [medusa(lab_with("noisy"), SIZES[1]) for _ in range(2)]
    assert [step_notes(trace) for trace in traces] == [expected] * 2 and all(drafts_ready)
    assert getattr(kernels, step).call_count == 1
    why = {"fails": "an old card", "is wrong": "a tree differs by 1 from torch"}[wrong]
    assert [record.message for record in caplog.records] == [
        f"trees are verified and laid out in torch, the Triton kernels failed: {why}"
    ]


def test_triton_kernels_are_used_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels_mock = Mock(return_value=None)
    monkeypatch.setattr(pipeline, "kernels", kernels_mock)
    pipeline._steps.cache_clear()
    for device, there in (("cpu", False), ("mps", False), ("cuda:0", True)):
        assert pipeline._steps(torch.device(device)) is pipeline.IN_TORCH
        kernels_mock.assert_called_with("triton_medusa", there=there)
    pipeline._steps.cache_clear()
