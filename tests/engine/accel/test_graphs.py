"""Passes that a GPU records as graphs, run here step by step by the same functions.

What needs a GPU is checked by benchmarks/cuda_parity.py.
"""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings

from engine.accel.accelerated_pool import GraphPool
from engine.accel.graphs import RECORDING, Graphs, bucket
from engine.trace.gpu_statistics import BatchedStatistics
from engine.trace.statistics import RowProbabilities, StatisticsRequest, compute
from engine.trie.backend import NodeOutput, OutputRow
from engine.trie.plain import Plain
from engine.trie.pool import Pool
from engine.trie.slots import PADDING
from tests.engine.trie.test_trie import TREES, grown
from tests.tiny import tiny


def graph_pool(kind: str, positions: int = 256) -> GraphPool:
    return GraphPool(tiny(kind).module, positions, capacity=64)


def logits(backend: Pool | Plain, cells: list) -> torch.Tensor:
    output_rows = backend.evaluate(cells)
    return torch.stack([output_rows[cell].output.logits[output_rows[cell].row] for cell in cells])


@pytest.mark.parametrize("at_once", [1, 3, 7])
@given(tree=TREES)
@settings(deadline=None, max_examples=15)
def test_padding_changes_no_logits_and_masks_are_the_ancestors(at_once: int, tree: list) -> None:
    pool, plain = graph_pool("llama"), Plain(tiny("llama").module)
    nodes = [cell for cell in grown(pool.top(None), tree) if cell.depth >= 0]
    for start in range(0, len(nodes), at_once):
        requested = list(dict.fromkeys(nodes[start : start + at_once]))
        torch.testing.assert_close(
            logits(pool, requested), logits(plain, requested), rtol=1e-4, atol=1e-3
        )
    for cell in nodes:
        assert pool.attends_to(cell) == {ancestor.slot for ancestor in cell.ancestry()}
    assert not pool._ancestors[PADDING].any()


def test_a_chain_and_its_branches_are_evaluated_in_one_pass() -> None:
    pool, plain = graph_pool("qwen3"), Plain(tiny("qwen3").module)
    start = pool.top(None).descend([3, 4, 5])
    held = [start, pool.evaluate([start])]
    chain = [start.descend([6, 7, 8][:end]) for end in (1, 2, 3)]
    cells = [*chain, start.child(9), chain[0].child(9)]
    torch.testing.assert_close(logits(pool, cells), logits(plain, cells), rtol=1e-4, atol=1e-3)
    del held


def test_a_pool_that_grows_between_passes_keeps_its_keys_and_values() -> None:
    pool, plain = graph_pool("llama", 512), Plain(tiny("llama").module)
    cell = pool.top(None).child(3)
    for at in range(100):
        pool.evaluate([cell])
        cell = cell.child(3 + at % 40)
    torch.testing.assert_close(logits(pool, [cell]), logits(plain, [cell]), rtol=1e-4, atol=1e-3)


def test_cells_of_a_failed_pass_get_no_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, plain = graph_pool("llama"), Plain(tiny("llama").module)
    first = pool.top(None).descend([3, 4])
    held = [first, pool.evaluate([first])]
    cell = first.child(5)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_forward", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            pool.evaluate([cell])
    assert cell.slot is None and pool.used == 2
    torch.testing.assert_close(logits(pool, [cell]), logits(plain, [cell]), rtol=1e-4, atol=1e-3)
    del held


def test_outputs_stay_valid_after_later_passes() -> None:
    pool = graph_pool("llama")
    first = pool.top(None).descend([3, 4])
    output_rows = pool.evaluate([first])
    before = output_rows[first].output.logits.clone()
    pool.evaluate([first.child(5)])
    torch.testing.assert_close(output_rows[first].output.logits, before, rtol=0, atol=0)


def test_an_unused_pool_is_freed_without_the_garbage_collector() -> None:
    pool = graph_pool("llama")
    pool.evaluate([pool.top(None).descend([3, 4])])
    pool_ref = weakref.ref(pool)
    gc.disable()
    try:
        del pool
        assert pool_ref() is None
    finally:
        gc.enable()


def test_without_a_gpu_work_runs_every_time() -> None:
    graphs, done = Graphs(torch.device("cpu")), []

    def work(inputs: torch.Tensor) -> NodeOutput:
        done.append(inputs.sum().item())
        return NodeOutput.of(torch.zeros(inputs.shape[1], 9))

    for value in range(3):
        graphs.play(work, (2, 512), torch.full((4, 2), value))
    assert done == [0, 8, 16] and graphs.count == 0


def test_nothing_is_recorded_while_another_thread_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs, recorded = Graphs(torch.device("cpu")), []
    monkeypatch.setattr(graphs, "_tries", 1)
    monkeypatch.setattr(graphs, "_record", lambda work, shape, inputs: recorded.append(shape))
    with RECORDING:
        for _ in range(3):
            assert graphs.play(torch.neg, "shape", torch.ones(1)).item() == -1
    assert not recorded
    assert graphs.play(torch.neg, "shape", torch.ones(1)).item() == -1
    assert recorded == ["shape"] and not RECORDING.locked()


def test_bucket_rounds_up_to_a_power_of_two() -> None:
    assert [bucket(size) for size in (1, 2, 3, 5, 13, 64)] == [1, 2, 4, 8, 16, 64]
    assert [bucket(size, 512) for size in (1, 512, 513, 2000)] == [512, 512, 1024, 2048]


@pytest.mark.parametrize("stages", [0, 1, 3])
def test_statistics_computed_at_once_equal_those_computed_row_by_row(stages: int) -> None:
    torch.manual_seed(0)
    output = NodeOutput.of(torch.randn(3, 5000) * 4)
    scores, given = [], output.logits
    for cut in range(stages):
        given = given.masked_fill(given < given.median() + cut, -torch.inf)
        scores.append(given)
    best = given.argmax(-1).tolist()
    picks = [(0, best[0]), (2, 17), (2, best[2]), (0, 4), (2, 8)]
    request = StatisticsRequest([OutputRow(output, row) for row in range(3)], scores, picks)
    one_by_one = compute(request)
    apart = [OutputRow(NodeOutput.of(torch.randn(1, 5000)), 0) for _ in range(2)]
    other = StatisticsRequest(apart, scores[:0], [(1, 3)])
    _, answer, _ = BatchedStatistics().compute_in_one_graph([other, request, other], ready=None)
    at_once = answer()
    assert at_once.ranks == one_by_one.ranks
    assert at_once.kept == one_by_one.kept and at_once.given == one_by_one.given
    assert at_once.final_top == one_by_one.final_top
    for name in ("raw_entropy", "raw_varentropy", "final_entropy"):
        assert getattr(at_once, name) == pytest.approx(getattr(one_by_one, name), rel=1e-5)
    for had, left, ours, theirs in zip(
        [at_once.given, *at_once.kept],
        at_once.kept,
        at_once.lowest,
        one_by_one.lowest,
        strict=False,
    ):
        cut = [row for row in range(3) if left[row] < had[row]]
        assert [ours[row] for row in cut] == pytest.approx([theirs[row] for row in cut])
    assert at_once.rows.keys() == one_by_one.rows.keys() == {0, 2}
    for row, theirs in one_by_one.rows.items():
        ours = at_once.rows[row]
        assert ours.per_token == theirs.per_token == 1 + stages
        probs = numbers_by_token(ours, ours.probs)
        for token, numbers in numbers_by_token(theirs, theirs.probs).items():
            assert probs[token] == pytest.approx(numbers, rel=1e-4)
        log_probs = numbers_by_token(ours, ours.log_probs)
        for token, numbers in numbers_by_token(theirs, theirs.log_probs).items():
            assert log_probs[token] == pytest.approx(numbers, abs=1e-5)


def numbers_by_token(row: RowProbabilities, numbers: list[float]) -> dict[int, tuple[float, ...]]:
    """The numbers of each token; tokens without numbers are left out."""
    return dict(zip(row.tokens, zip(*[iter(numbers)] * row.per_token, strict=True), strict=False))


def test_slots_of_cells_that_are_never_created_are_released() -> None:
    pool = graph_pool("llama")
    pending = pool.reserve_cells(5)
    pending.output = NodeOutput.of(torch.zeros(5, 9))
    cell, output_row = pending.create(2, pool.top(None), 7)
    assert (cell.slot, cell.token, output_row.row) == (
        pending.slots[2],
        7,
        2,
    ) and pool.used == 5
    del pending
    assert pool.used == 1
