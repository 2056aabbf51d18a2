"""The trie and its pool: masks are ancestors, equal requests are shared, slots are released."""

import gc
from collections import deque

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trie import pool as pools
from engine.trie.cell import Cell, top
from engine.trie.plain import Plain
from engine.trie.pool import Pool
from engine.trie.slots import REMEMBERED
from tests.tiny import tiny

# A growing tree: each entry says which earlier node gets a child, with which token.
TREES = st.lists(st.tuples(st.integers(0, 30), st.integers(3, 9)), min_size=1, max_size=30)


def grown(start: Cell, tree: list[tuple[int, int]]) -> list[Cell]:
    nodes = [start]
    for parent, token in tree:
        nodes.append(nodes[parent % len(nodes)].child(token))
    return nodes


@given(TREES)
def test_equal_paths_are_the_same_cell(tree: list[tuple[int, int]]) -> None:
    start = top()
    nodes = grown(start, tree)
    paths = {tuple(cell.path()): cell for cell in nodes}
    assert all(paths[tuple(cell.path())] is cell for cell in nodes)
    assert all(cell.depth == len(cell.path()) - 1 for cell in nodes)


@settings(deadline=None, max_examples=40)
@given(TREES, st.integers(1, 7))
def test_every_mask_row_is_the_cell_and_its_ancestors(
    tree: list[tuple[int, int]], at_once: int
) -> None:
    pool = Pool(tiny("llama").module, positions=256)
    nodes = [cell for cell in grown(pool.top(None), tree) if cell.depth >= 0]
    for start in range(0, len(nodes), at_once):
        pool.evaluate(nodes[start : start + at_once])
    for cell in nodes:
        assert pool.attends_to(cell) == {ancestor.slot for ancestor in cell.ancestry()}
    assert len({cell.slot for cell in nodes}) == len(set(map(id, nodes))) == pool.used


@settings(deadline=None, max_examples=30)
@given(TREES, st.lists(st.integers(0, 30), max_size=3))
def test_slots_are_released_when_a_branch_is_freed(
    tree: list[tuple[int, int]], hold: list[int]
) -> None:
    pool = Pool(tiny("llama").module, positions=256)
    nodes = [cell for cell in grown(pool.top(None), tree) if cell.depth >= 0]
    pool.evaluate(nodes)
    held = [nodes[index % len(nodes)] for index in hold]
    needed = {id(ancestor) for cell in held for ancestor in cell.ancestry()}
    nodes.clear()
    assert pool.used == len(needed)
    held.clear()
    assert pool.used == 0  # at once, without the garbage collector


@settings(deadline=None, max_examples=20)
@given(TREES, st.integers(1, 7))
def test_a_reused_slot_gives_the_logits_of_the_text_alone(
    tree: list[tuple[int, int]], at_once: int
) -> None:
    model = tiny("llama").module
    pool, plain = Pool(model, positions=256), Plain(model)
    for _ in range(2):  # the second time in slots that were used before
        nodes = [cell for cell in grown(pool.top(None), tree) if cell.depth >= 0]
        for start in range(0, len(nodes), at_once):
            requested = nodes[start : start + at_once]
            pooled, alone = pool.evaluate(requested), plain.evaluate(requested)
            for cell in requested:
                ours, theirs = (p[cell].output.logits[p[cell].row] for p in (pooled, alone))
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
        del nodes, requested, pooled, alone, cell


def test_a_full_pool_grows_and_keeps_its_keys_and_values() -> None:
    model = tiny("llama").module
    pool, plain = Pool(model, positions=2_000), Plain(model)
    first = pool.top(None).descend([3, 4, 5])
    pool.evaluate([first])
    long = first.descend([6 + at % 50 for at in range(200)])
    branch = first.descend([7 + at % 40 for at in range(700)])  # the pool doubles twice
    pooled, alone = pool.evaluate([long, branch]), plain.evaluate([long])
    assert pool.used == 3 + 200 + 700
    ours, theirs = pooled[long], alone[long]
    torch.testing.assert_close(
        ours.output.logits[ours.row], theirs.output.logits[theirs.row], rtol=1e-4, atol=1e-3
    )


def room(pool: Pool) -> set[int]:
    """The capacities of everything that is kept per slot."""
    kept = [*pool._ancestors.shape, len(pool._states)]
    return {pool._slots.capacity, *kept, *(layer.keys.shape[2] for layer in pool._layers)}


def test_a_pool_shrinks_to_what_the_last_comparisons_needed() -> None:
    model = tiny("llama").module
    pool, plain = Pool(model, positions=2_000), Plain(model)
    kept = pool.top(None).descend([3, 4, 5])
    held = pool.evaluate([kept])
    before = room(pool)
    pool.evaluate([kept.descend([6 + at % 50 for at in range(700)])])
    assert min(room(pool)) > 700
    for _ in range(REMEMBERED):
        pool.release_memory()
        assert min(room(pool)) > 700, "the next one may need it again"
        pool.evaluate([kept.descend([7, 8, 9])])
    pool.release_memory()
    further = [kept.descend([7 + at % 40 for at in range(length)]) for length in (5, 150)]
    pooled, alone = pool.evaluate(further), plain.evaluate(further)
    assert room(pool) == before
    for cell in further:
        ours, theirs = (p[cell].output.logits[p[cell].row] for p in (pooled, alone))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    assert pool.attends_to(further[0]) == {cell.slot for cell in further[0].ancestry()}
    del held


def test_a_pool_does_not_shrink_below_a_slot_in_use() -> None:
    pool = Pool(tiny("llama").module, positions=2_000)
    low = pool.top(None).descend([5] * 300)
    pool.evaluate([low])
    high = pool.top(None).descend([3, 4])
    before = pool.evaluate([high])[high].output.logits.clone()
    del low
    for _ in range(2 * REMEMBERED):
        pool.release_memory()
    assert high.slot in range(300, min(room(pool)))
    torch.testing.assert_close(pool.evaluate([high])[high].output.logits, before)


def test_a_path_longer_than_a_chunk_is_evaluated_in_several_passes() -> None:
    model = tiny("llama").module
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    pool = Pool(model, positions=2_000)
    hook = model.register_forward_pre_hook(count)
    pool.evaluate([pool.top(None).descend([3] * (pools.CHUNK + 1))])
    hook.remove()
    assert calls == 2


def test_freeing_a_very_long_branch_does_not_exhaust_the_stack() -> None:
    cell = top()
    for _ in range(200_000):
        cell = cell.child(3)
    del cell
    gc.collect()


def test_an_evaluated_child_is_shared_by_later_requests() -> None:
    released: deque[int] = deque()
    start = top(released=released)
    born = start.add_evaluated_child(5, slot=3)
    assert born.complete and start.child(5) is born and born.path() == [5]
    twin = start.add_evaluated_child(5, slot=4)
    assert start.child(5) is born and twin is not born
    del born, twin
    assert sorted(released) == [3, 4] and start.child(5).slot is None
