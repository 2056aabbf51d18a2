"""The loop: runs share forward passes, fail separately, and free their memory."""

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from engine import strategy as register
from engine.accel import accelerated_pool
from engine.errors import PlaygroundError
from engine.run import Run
from engine.strategy import Decoding
from engine.trace import Trace
from engine.trie.plain import Plain
from engine.trie.slots import REMEMBERED
from playground import Limits, Playground
from tests.recordings import as_on_a_gpu
from tests.tiny import TRIE, tiny

ALL = [
    "greedy",
    ("sample", {"num_return_sequences": 2}),
    ("sample", {"temperature": 0.7, "top_p": 0.9}),
    ("beam_search", {"num_beams": 4, "num_return_sequences": 3}),
    ("beam_sample", {"num_beams": 3}),
]


@pytest.fixture
def extra() -> Iterator[Callable[..., None]]:
    """Registers strategies during a test."""
    before = dict(register._REGISTRY)

    def add(id: str, decode: Callable[[Run, Any], Decoding]) -> None:
        @dataclass(frozen=True)
        class Params:
            """None."""

        register.strategy(id, order=99, params=Params, do_sample=False, num_beams=1)(decode)

    yield add
    register._REGISTRY.clear()
    register._REGISTRY.update(before)


def used(lab: Playground) -> int:
    gc.collect()
    return lab._backends.trie.backend.used


def timeless(trace: Trace) -> Trace:
    return replace(
        trace, ticks=tuple(replace(tick, ms=0.0, decided_ms=None) for tick in trace.ticks)
    )


def test_a_tick_is_one_pass_for_all_runs(passes: Callable[[Playground], list[int]]) -> None:
    lab = Playground(tiny("llama"))
    sizes = passes(lab)
    traces = lab.compare("one two", ALL, max_new_tokens=10)
    assert len(sizes) == max(len(trace.ticks) for trace in traces)
    assert sizes[0] == len("one two")
    assert max(sizes[1:]) <= 1 + 2 + 1 + 4 + 3


def test_the_tokens_of_a_pass_are_divided_among_the_runs(
    passes: Callable[[Playground], list[int]],
) -> None:
    lab = Playground(tiny("llama"))
    sizes = passes(lab)
    runs = ["greedy", "greedy", ("beam_search", {"num_beams": 4})]
    traces = lab.compare("one two", runs, max_new_tokens=8, min_new_tokens=8)
    assert [trace.ticks[0].prompt_nodes for trace in traces] == [len("one two"), 0, 0]
    for number, size in enumerate(sizes[1:], 1):
        ticks = [trace.ticks[number] for trace in traces]
        assert {tick.pass_nodes for tick in ticks} == {size}
        assert sum(tick.own_nodes or 0 for tick in ticks) == pytest.approx(size, abs=0.01)
        assert ticks[0].own_nodes == ticks[1].own_nodes  # the same text: half of each token
        assert (ticks[0].own_nodes or 0) <= 0.5


def test_a_run_alone_has_the_whole_pass() -> None:
    lab = Playground(tiny("llama"))
    [trace] = lab.compare("one two", [("beam_search", {"num_beams": 4})], max_new_tokens=8)
    assert all(tick.own_nodes == tick.pass_nodes for tick in trace.ticks)
    assert [tick.pass_nodes for tick in trace.ticks[1:]] == [4] * (len(trace.ticks) - 1)


def test_equal_continuations_are_evaluated_once(passes: Callable[[Playground], list[int]]) -> None:
    lab = Playground(tiny("llama"))
    sizes = passes(lab)
    lab.compare("one two", ["greedy", "greedy", ("beam_search", {"num_beams": 1})])
    assert set(sizes[1:]) == {1}


def test_a_prompt_is_evaluated_once_and_prompts_share_prefixes(
    passes: Callable[[Playground], list[int]],
) -> None:
    lab = Playground(tiny("llama"))
    sizes = passes(lab)
    [first] = lab.compare("one two", ["greedy"], max_new_tokens=2)
    [second] = lab.compare("one two", [("sample", {"temperature": 0.5})], max_new_tokens=2)
    lab.compare("one two three", ["greedy"], max_new_tokens=2)
    assert sizes == [7, 1, 1, 6, 1]
    assert (first.ticks[0].forward_passes, second.ticks[0].forward_passes) == (1, 0)


@pytest.mark.parametrize("kind", TRIE)
def test_both_backends_give_equal_traces(kind: str) -> None:
    lab, plain = Playground(tiny(kind)), Playground(tiny(kind))
    plain._backends.trie_length = 0
    assert isinstance(plain._backends.whole(1).backend, Plain) and lab._backends.trie_length > 0
    for ours, theirs in zip(
        lab.compare("Hello there", ALL, max_new_tokens=12, seed=4),
        plain.compare("Hello there", ALL, max_new_tokens=12, seed=4),
        strict=True,
    ):
        assert [s.token_ids for s in ours.sequences] == [s.token_ids for s in theirs.sequences]
        assert [t.forward_passes for t in ours.ticks] == [t.forward_passes for t in theirs.ticks]
        assert [t.nodes for t in ours.ticks] == [t.nodes for t in theirs.ticks]
        for a, b in zip(ours.steps, theirs.steps, strict=True):
            fields = (a.id, a.parent, a.tick, a.token, a.text, a.event, a.rank)
            assert fields == (b.id, b.parent, b.tick, b.token, b.text, b.event, b.rank)
            assert (a.raw, a.final) == pytest.approx((b.raw, b.final), abs=1e-3)
            assert a.distribution.kept == b.distribution.kept
            entropies = (b.distribution.raw_entropy, b.distribution.final_entropy)
            assert (
                a.distribution.raw_entropy,
                a.distribution.final_entropy,
            ) == pytest.approx(entropies, abs=1e-3)


def test_after_a_run_only_the_prompt_stays_in_the_cache() -> None:
    lab = Playground(tiny("llama"))
    lab.compare("one two", ALL, max_new_tokens=15)
    assert used(lab) == len("one two")


def test_closing_the_stream_frees_everything_at_once() -> None:
    lab = Playground(tiny("llama"))
    stream = lab.stream("one two", ALL, max_new_tokens=200)
    for _ in range(12):
        next(stream)
    assert used(lab) > len("one two")
    stream.close()
    assert used(lab) == len("one two")


def test_stop_ends_every_run_within_a_tick() -> None:
    lab = Playground(tiny("llama"))
    stop = threading.Event()
    traces = {}
    after = 0
    for update in lab.stream("one two", ALL, stop=stop, max_new_tokens=200, min_new_tokens=200):
        after += stop.is_set() and bool(update.steps)
        if update.steps and update.steps[-1].tick == 5:
            stop.set()
        if update.trace:
            traces[update.run] = update.trace
    assert len(traces) == len(ALL)
    for trace in traces.values():
        assert trace.stop.rule == "cancelled" and trace.error is None
        assert len(trace.sequences[0].token_ids) in (6, 7)
    assert [len(traces[run].sequences) for run in range(len(ALL))] == [1, 2, 1, 3, 1]
    assert after <= 2 * len(ALL)
    assert used(lab) == len("one two")


def test_an_exception_ends_its_run_alone(
    extra: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    def fails(run: Run, params: Any) -> Decoding:
        token = int(run.scores([run.root]).argmax())
        run.show([run.choose(run.root, token)])
        [node] = yield [(run.root, token)]
        raise RuntimeError(f"broken after {node.cell.token}")

    def refuses(run: Run, params: Any) -> Decoding:
        raise PlaygroundError("not with this prompt")
        yield []

    extra("fails", fails)
    extra("refuses", refuses)
    lab = Playground(tiny("llama"))
    broken, refused, good = lab.compare("one two", ["fails", "refuses", "greedy"], max_new_tokens=8)
    [alone] = lab.compare("one two", ["greedy"], max_new_tokens=8)
    assert broken.error is not None and broken.error.startswith("RuntimeError: broken after")
    assert broken.stop.rule == "error" and len(broken.sequences[0].token_ids) == 1
    assert refused.error == "not with this prompt" and refused.sequences == ()
    assert good.error is None and good.sequences == alone.sequences
    assert "a strategy failed" in caplog.text
    assert used(lab) == len("one two")


def test_a_comparison_too_large_for_the_cache_fails_and_the_next_one_works() -> None:
    lab = Playground(tiny("llama"), limits=Limits(positions=280))
    wide = ("sample", {"num_return_sequences": 16, "min_new_tokens": 60})
    traces = lab.compare("one two", [wide], max_new_tokens=60)
    assert all("the limit is 280" in str(trace.error) for trace in traces)
    [trace] = lab.compare("another", ["greedy"], max_new_tokens=20)
    assert trace.error is None


def test_without_memory_for_all_runs_the_widest_ends_and_the_others_go_on() -> None:
    lab = Playground(tiny("llama"), limits=Limits(positions=280))
    wide = ("sample", {"num_return_sequences": 16})
    length = {"max_new_tokens": 60, "min_new_tokens": 60}
    traces = lab.compare("one two", ["greedy", wide, ("beam_search", {"num_beams": 2})], **length)
    assert "the limit is 280" in str(traces[1].error)
    assert traces[1].sequences and len(traces[1].sequences[0].token_ids) > 5
    [alone] = lab.compare("one two", ["greedy"], **length)
    assert traces[0].error is None and traces[0].sequences == alone.sequences
    assert traces[2].error is None and len(traces[2].sequences[0].token_ids) == 60
    assert used(lab) == len("one two")


def test_a_run_that_takes_longer_than_the_servers_limit_ends_with_its_text_so_far() -> None:
    lab = Playground(tiny("llama"), limits=Limits(seconds=0.001))
    traces = lab.compare("one two", ["greedy", "sample"], max_new_tokens=200, min_new_tokens=200)
    for trace in traces:
        assert (trace.stop.rule, trace.stop.detail) == ("time", "at most 0.001 s")
        assert trace.error is None and 0 < len(trace.sequences[0].token_ids) < 200
    assert used(lab) == len("one two")


def test_callers_on_several_threads_share_passes_and_get_their_own_results() -> None:
    lab = Playground(tiny("llama"))
    prompts = [f"prompt number {n}" for n in range(6)]
    alone = [lab.compare(prompt, ALL, max_new_tokens=12, seed=1) for prompt in prompts]
    together: dict[int, list[Trace]] = {}
    barrier = threading.Barrier(len(prompts))

    def work(index: int) -> None:
        barrier.wait()
        together[index] = lab.compare(prompts[index], ALL, max_new_tokens=12, seed=1)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, traces in enumerate(alone):
        for ours, theirs in zip(traces, together[index], strict=True):
            assert [s.token_ids for s in ours.sequences] == [s.token_ids for s in theirs.sequences]


def test_waiting_callers_are_served_by_one_pass(passes: Callable[[Playground], list[int]]) -> None:
    lab = Playground(tiny("llama"))
    evaluator = lab._backends.trie
    start = evaluator.backend.top(None)
    sizes = passes(lab)
    done = []
    with evaluator.lock:  # as during a pass
        threads = [
            threading.Thread(
                target=lambda t=token: done.append(evaluator.evaluate([start.child(t)]))
            )
            for token in (5, 6, 7)
        ]
        for thread in threads:
            thread.start()
        while len(evaluator.batching) < 3:
            pass
    for thread in threads:
        thread.join()
    assert sizes == [3] and len(done) == 3


def test_a_strategy_may_yield_several_branches_at_once(
    extra: Callable[..., None],
) -> None:
    seen: list[torch.Tensor] = []

    def branches(run: Run, params: Any) -> Decoding:
        token = int(run.scores([run.root]).argmax())
        step = run.choose(run.root, token)
        [node] = yield [(run.root, token)]
        nodes = yield [(node, 5), (node, 6), (node, 5)]
        assert nodes[0].cell is nodes[2].cell and nodes[0].unrecorded == (5,)
        seen.append(run.scores(nodes))
        from engine.trace import Stop

        run.finish([(step, None, Stop("done"))], Stop("done"))

    extra("branches", branches)
    [trace] = Playground(tiny("llama")).compare("one two", ["branches"])
    assert trace.error is None
    assert torch.equal(seen[0][0], seen[0][2]) and not torch.equal(seen[0][0], seen[0][1])


@pytest.mark.parametrize("recorded", [False, True])
def test_memory_of_a_long_comparison_is_freed_after_several_short_ones(
    recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recorded:
        as_on_a_gpu(monkeypatch)
        monkeypatch.setattr(accelerated_pool, "CAPACITY", 64)
    lab = Playground(tiny("llama"))
    pool = lab._backends.trie.backend
    [expected] = lab.compare("a b", ["greedy"], max_new_tokens=8)
    least = pool._slots.capacity
    lab.compare(
        "a b", [("sample", {"num_return_sequences": 8})], min_new_tokens=60, max_new_tokens=60
    )
    assert pool._slots.capacity > least
    for _ in range(REMEMBERED):
        [trace] = lab.compare("a b", ["greedy"], max_new_tokens=8)
        assert trace.text == expected.text
    assert pool._slots.capacity == least
