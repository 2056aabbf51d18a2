"""What a GPU has told while it is busy with the next tick, told in that order on a CPU."""

import gc
import pickle
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from engine.run_control import RunControl
from engine.trace import Trace
from engine.trace import deferred_writer as telling
from engine.trace.distributions import observed
from engine.trace.gpu_statistics import Measuring
from engine.trace.statistics import Known, Request
from engine.trace.token_text import Numbers
from engine.trie.backend import Best, Place, Reading
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
        replace(trace, ticks=tuple(replace(tick, ms=0.0) for tick in trace.ticks))
        for trace in traces
    ]


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "works_by_itself", lambda device: True)


@pytest.mark.parametrize("choices", [CHOICES[:5], CHOICES[5:]])
def test_what_is_told_later_is_the_same_story(
    choices: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    def traces() -> list[Trace]:
        lab = Playground(tiny("llama"))
        return timeless(lab.compare("a b a b", choices, max_new_tokens=12, seed=3))

    at_once = traces()
    monkeypatch.setattr(telling, "works_by_itself", lambda device: True)
    assert traces() == at_once


def test_news_come_in_order_and_end_with_the_trace(ahead: None) -> None:
    steps: dict[int, dict] = {}
    for update in Playground(tiny("llama")).stream("a b", CHOICES[:5], max_new_tokens=8, seed=1):
        own = steps.setdefault(update.run, {})
        own |= {step.id: step for step in update.steps}
        assert sorted(own) == list(range(len(own)))
        assert update.lead is None or update.lead in own
        if update.trace:
            assert tuple(own.values()) == update.trace.steps


def test_somebody_who_goes_step_by_step_sees_each_step_before_the_next_is_granted(
    ahead: None,
) -> None:
    pace, seen = RunControl(paused=True, patience=20), []

    def watch() -> None:
        lab = Playground(tiny("llama"))
        for update in lab.stream("a b", ["greedy"], max_new_tokens=4, stop=pace):
            seen.extend(step.token.id for step in update.steps)
            told.release()

    told = threading.Semaphore(0)
    thread = threading.Thread(target=watch)
    thread.start()
    for expected in range(1, 5):
        assert told.acquire(timeout=20)
        assert len(seen) >= expected
        pace.step()
    pace.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_what_cannot_be_told_ends_its_run_alone(
    ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measuring.measured

    def fails(self, requests, ready=None):
        if any(request.stages for request in requests):
            raise MemoryError("no room to tell")
        return measured(self, requests, ready)

    monkeypatch.setattr(Measuring, "measured", fails)
    lab = Playground(tiny("llama"))
    good, bad = lab.compare("a b", ["greedy", ("sample", {"top_k": 5})], max_new_tokens=5, seed=1)
    assert good.error is None and len(good.sequences[0].token_ids) > 0
    assert bad.error is not None and "no room to tell" in bad.error and bad.steps == ()


def test_a_stopped_run_has_told_all_it_decided(ahead: None) -> None:
    ticks = iter(range(100))

    class After:
        def is_set(self) -> bool:
            return next(ticks) >= 3

    updates = list(
        Playground(tiny("llama")).stream("a b", CHOICES[:3], max_new_tokens=50, stop=After())
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
def test_what_is_measured_comes_in_few_shapes(runs: list, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(Measuring, "measured", Measuring.at_once)
    lab = Playground(tiny("llama"))
    traces = lab.compare("a few words", runs, max_new_tokens=40)
    assert not any(trace.error for trace in traces)
    graphs = lab._backends.trie.measuring._graphs
    # One at the start, one when a text ends, and two or three between.
    assert graphs and len(graphs._met) <= 10


KNOWN = ["greedy", ("beam_search", {"num_beams": 5}), ("contrastive_search", {"top_k": 4})]


def test_what_the_host_was_told_to_decide_by_is_asked_for_no_more(ahead: None) -> None:
    lab = Playground(tiny("llama"))
    asked = Mock(wraps=lab._backends.trie.measuring.measured)
    lab._backends.trie.measuring.measured = asked
    lab.compare("a few words", KNOWN, max_new_tokens=12)
    assert not asked.called
    lab.compare("a few words", [*KNOWN, ("sample", {"top_k": 5})], max_new_tokens=12)
    assert {len(request.stages) for call in asked.call_args_list for request in call.args[0]} == {1}


def test_of_a_row_that_is_known_the_picks_beyond_the_best_are_told_as_well() -> None:
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(1)) * 3
    reading = Reading.of(logits)
    places = [Place(reading, row) for row in range(2)]
    order = logits.argsort(-1, descending=True).tolist()
    picks = [(0, order[0][0]), (1, order[1][40]), (1, order[1][3]), (1, order[1][200])]
    further = {
        (row, token): (float(reading.log_probs[row, token]), order[row].index(token))
        for row, token in picks[1:]
    }
    known = Known(Best.of(reading.told), further)
    assert known.has(picks) and not known.has([(0, order[0][40])])
    speller = Numbers()
    [measured] = Measuring().measured([Request(places, [], picks)])
    ours, theirs = (
        observed(told, [], picks, 300, speller) for told in (lambda: known.numbers(picks), measured)
    )
    assert [one.rank for one in ours] == [1, 41, 4, 201]
    assert ours == theirs


def readings() -> int:
    """How many there are anywhere."""
    gc.collect()
    return sum(isinstance(one, Reading) for one in gc.get_objects())


def test_a_trace_that_nobody_looks_at_holds_nothing_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(Measuring, "measured", Measuring.at_once)
    lab, before = Playground(tiny("llama")), readings()
    traces = lab.compare("a few words", [*KNOWN, ("sample", {"top_k": 5})], max_new_tokens=30)
    # The prompt's, those of recordings, and the last one that was measured.
    assert readings() - before <= 10
    assert [len(trace.steps) for trace in traces] == [len([*trace.steps]) for trace in traces]


def test_a_trace_that_nobody_looked_at_can_be_taken_elsewhere() -> None:
    [trace] = Playground(tiny("llama")).compare("a few words", ["sample"], max_new_tokens=3)
    assert pickle.loads(pickle.dumps(trace)) == trace
