"""Pipelined Medusa rounds: a GPU continues without waiting for the host.

Without this, the GPU would wait for the host in every round, nearly as long as it computes. Here it
verifies a tree of drafts, drafts the next tree and evaluates that before the host has read the
result; the host records a round while the GPU computes the next. It verifies greedily, by the
model's most probable tokens; a round that ends differently is dropped, and the host continues
decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from functools import cache, partial
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.accel.accelerated_pool import GraphPool
from engine.accel.graphs import ROWS, bucket
from engine.accel.host_future import HostFuture, fetch, record_event
from engine.accel.kernels import checked, kernels
from engine.drafting.draft_tree import DraftTree, TreeDrafter, tree_of
from engine.drafting.tree_size import START, TreeSize
from engine.errors import PlaygroundError
from engine.trie.backend import Best, NodeOutput, OutputRow, PendingCells, after_layers, parts
from engine.trie.cell import Cell
from engine.trie.node import Node
from engine.trie.pool import ancestor_rows
from engine.trie.slots import PADDING

CLOSE = 1e-3  # how far Triton kernels may be off from torch


class Verified(NamedTuple):
    """The model's output on a tree of drafts."""

    own: list[int]  # the most probable token before the tree, and after each token of it
    pairs: list[tuple[int, int]]  # each drafted token, and the index of the node before it
    log_probs: list[float]  # of each drafted token
    higher: list[int]  # how many tokens are more probable than each drafted one
    best: Best  # the most probable tokens at each node


class _Round(NamedTuple):
    """A round that was launched on the GPU."""

    cells: PendingCells  # the positions at which the next tree is evaluated
    table: Tensor  # that tree as the forward pass reads it: see `_lay_out`
    result: HostFuture
    drafting: tuple[_Timestamp, _Timestamp]  # start and end of verifying and drafting


class _Next(NamedTuple):
    """The tree that the GPU has drafted and evaluated, and where."""

    start: list[int]
    tree: DraftTree


class MedusaPipeline:
    """The draft trees of one run."""

    def __init__(self, heads: TreeDrafter, size: TreeSize, ends: Collection[int]) -> None:
        self._heads = heads
        self._size = size
        self._ends = ends
        self._end_ids = torch.tensor(sorted(ends) or [-1])
        self._round: _Round | None = None
        self._next: _Next | None = None
        self._evaluated: dict[Cell, OutputRow] = {}  # held until the loop has found them

    def tree(self, node: Node, token: int, room: int) -> tuple[DraftTree, float]:
        """Draft a tree after a token chosen at a node, at most ``room`` tokens deep, and the
        milliseconds that took; where the GPU has done so already, that tree of full depth."""
        if ready := self.take_ready(node, token):
            return ready
        since = time.perf_counter()
        [hidden] = parts([node.output_row], "hidden")  # (1, 1 + layers, width)
        features = after_layers(hidden, self._heads.layers)
        size = self._size._replace(depth=min(self._size.depth, room))
        tree = self._heads.tree(features, token, self._ends, size)
        return tree, (time.perf_counter() - since) * 1000

    def take_ready(self, node: Node, token: int) -> tuple[DraftTree, float] | None:
        """The tree after a token chosen at a node, if the GPU has evaluated it."""
        current, following = self._round, self._next
        self._next = None
        start = [token, node.cell.depth, node.cell.slot]
        if not current or not following or following.start != start:
            self._round = None
            return None
        tree, created = following.tree, [current.cells.create(0, node.cell, token)]
        for row, (above, own) in enumerate(zip(tree.parents, tree.tokens, strict=True), start=1):
            parent, _ = created[above + 1]
            created.append(current.cells.create(row, parent, own))
        self._evaluated = dict(created)
        node.evaluator.store_outputs(self._evaluated)
        since, until = current.drafting
        return tree, until.ms_since(since)

    def verify(self, nodes: Sequence[Node]) -> Generator[HostFuture, Tensor, Verified | None]:
        """The model's output on the tree at some nodes, the one before the tree first; the GPU goes
        on with the tree after the accepted tokens. None where it cannot."""
        self._evaluated = {}  # these nodes hold them now
        if not self.possible(nodes):
            return None
        evaluator, output, current = nodes[0].evaluator, nodes[0].output_row.output, self._round
        pool = evaluator.backend
        assert isinstance(pool, GraphPool), "possible has checked this"
        if current and current.cells.output is output:
            rows, table = len(current.cells.slots), current.table
        else:
            rows, table = len(nodes), _table(nodes)
        with evaluator.lock:
            try:
                cells = pool.reserve_cells(1 + self._heads.max_tokens(self._size))
            except PlaygroundError:  # the pool is full
                return None
            self._round = launched = self._launch(output, rows, table, cells)
            pool.evaluate_ahead(cells, launched.table)
        packed = yield from fetch(launched.result)
        count, shape = len(nodes), (rows, *output.summary.shape[1:])
        ends = accumulate([rows, rows, START, rows, prod(shape)])
        own, given, start, higher, best, columns = packed.tensor_split([*ends])
        tree = tree_of(columns.view(5, -1).tolist(), self._size.min_probability)
        self._next = _Next(start.long().tolist(), tree)
        index = {node.cell: row for row, node in enumerate(nodes)}
        return Verified(
            own[:count].long().tolist(),
            [(index[node.cell.parent], node.cell.token) for node in nodes[1:] if node.cell.parent],
            given[1:count].tolist(),
            higher[1:count].long().tolist(),
            Best.of(best.view(shape)[:count]),
        )

    def possible(self, nodes: Sequence[Node]) -> bool:
        """Whether the GPU can continue from a tree: one graph has evaluated all of it, in order."""
        pool, output = nodes[0].evaluator.backend, nodes[0].output_row.output
        return (
            isinstance(pool, GraphPool)
            and 1 + self._heads.max_tokens(self._size) <= ROWS
            and all(
                node.output_row.output is output and node.output_row.row == row
                for row, node in enumerate(nodes)
            )
        )

    def _launch(self, output: NodeOutput, rows: int, table: Tensor, cells: PendingCells) -> _Round:
        """Verify the tree in the first rows of an output and draft the next one, as one graph."""
        heads, size, device = self._heads, self._size, output.logits.device
        slots = [*cells.slots, *[PADDING] * (bucket(len(cells.slots)) - len(cells.slots))]
        self._end_ids = self._end_ids.to(device)
        outputs = [getattr(output, name)[:rows] for name in _OUTPUTS]
        inputs = *outputs, table, self._end_ids, torch.tensor(slots)
        work = partial(_verify_and_draft, _steps(device), heads, size)
        shape: Hashable = (_verify_and_draft, size, *(tensor.shape for tensor in inputs))
        with heads.lock:
            since = _Timestamp(device)
            result: _Result = heads.graphs.play(work, shape, *inputs)
            until = _Timestamp(device)
            table = result.table.clone()
            return _Round(cells, table, HostFuture(result.packed), (since, until))


class _Timestamp:
    """A point in time of a device's work."""

    def __init__(self, device: torch.device) -> None:
        self._time, self._event = time.perf_counter(), record_event(device, timed=True)

    def ms_since(self, earlier: _Timestamp) -> float:
        """The milliseconds from another one to this."""
        if self._event and earlier._event:
            return float(earlier._event.elapsed_time(self._event))
        return (self._time - earlier._time) * 1000


class Walk(NamedTuple):
    """How far the model agrees with a tree, by its most probable tokens."""

    packed: Tensor  # each row's best token, the log-probability of its own, the start; float64
    start: Tensor  # (START,) where the next tree begins
    features: Tensor  # (1, layers, width) the states that draft heads read there
    parents: Tensor  # (rows,) the parent row of each; of the first row itself


def _walk(
    layers: Sequence[int], top: Tensor, log_probs: Tensor, hidden: Tensor, table: Tensor
) -> Walk:
    """Walk down a tree for as long as its tokens are the most probable ones."""
    rows, best = len(top), top[:, 0]
    tokens, depths, slots = table[:3, :rows]
    inside = table[4 : 4 + rows, :rows].bool()  # (rows, rows) ancestors of each, and itself
    above = inside & ~torch.eye(rows, dtype=torch.bool, device=inside.device)
    parents = (above * (1 + depths)).argmax(-1)
    agrees = best[parents] == tokens
    accepted = (agrees | ~inside)[:, 1:].all(-1)
    end = (accepted * (1 + depths)).argmax(-1, keepdim=True)
    start = torch.cat([best[end], depths[end], slots[end]])
    given = log_probs[parents, tokens]
    packed = torch.cat([best.double(), given.double(), start.double()])
    return Walk(packed, start, after_layers(hidden, layers)[end], parents)


def _lay_out(size: TreeSize, columns: Tensor, start: Tensor, slots: Tensor) -> Tensor:
    """The table by which a forward pass evaluates a tree, (4 + slots, slots), the token that the
    tree follows first: tokens, depths, pool positions, the position before the tree, and which
    cells each may attend to."""
    numbers, tokens, above = columns[:3].long()
    places = (above[:, None] == numbers).long().argmax(-1)
    parents = pad(torch.where(above < 0, 0, 1 + places), (1, 0))  # of the first row itself
    rows = len(parents)
    inside = torch.eye(rows, dtype=torch.long, device=parents.device)
    ancestors = parents
    for _ in range(size.depth):
        inside.scatter_(1, ancestors[:, None], 1)
        ancestors = parents[ancestors]
    cells = [
        torch.cat([start[:1], tokens]),
        start[1] + inside.sum(-1),
        slots[:rows],
        start[2].expand(rows),
    ]
    # Tokens that are too improbable for the tree become padding.
    kept = pad(columns[3].exp() >= size.min_probability, (1, 0), value=True)
    table = torch.cat([torch.stack(cells), inside * kept[:, None]]) * kept
    missing = len(slots) - rows
    return pad(table, (0, missing, 0, missing))


def _table(nodes: Sequence[Node]) -> Tensor:
    """The table of nodes that are known on the host."""
    cells = [node.cell for node in nodes]
    _, inside = ancestor_rows(cells)
    rows = [(cell.token, cell.depth, cell.slot, PADDING) for cell in cells]
    return torch.cat([torch.tensor(rows).T, inside])


class _Steps(NamedTuple):
    """What comes between two forward passes, apart from drafting."""

    walk: Callable[..., Walk]
    lay_out: Callable[..., Tensor]


IN_TORCH = _Steps(_walk, _lay_out)


_OUTPUTS = ("logits", "summary", "top_tokens", "log_probs", "hidden")  # of a forward pass


class _Result(NamedTuple):
    packed: Tensor  # the walk, ranks and best tokens for the trace, and the next tree's columns
    table: Tensor  # (4 + rows, rows) the next tree for the forward pass


def _verify_and_draft(
    steps: _Steps,
    heads: TreeDrafter,
    size: TreeSize,
    logits: Tensor,
    best: Tensor,
    top: Tensor,
    log_probs: Tensor,
    hidden: Tensor,
    table: Tensor,
    ends: Tensor,
    slots: Tensor,
) -> _Result:
    """Verify a tree, and draft the next one for the given pool positions."""
    walk = steps.walk(heads.layers, top, log_probs, hidden, table)
    columns = heads.growing(size)(walk.features, walk.start[:1], ends)
    before, tokens = logits[walk.parents], table[0, : len(logits), None]
    higher = (before > before.gather(1, tokens)).sum(-1)
    packed = torch.cat([walk.packed, higher.double(), best.flatten(), columns.flatten()])
    return _Result(packed, steps.lay_out(size, columns, walk.start, slots))


@cache
def _steps(device: torch.device) -> _Steps:
    """One Triton kernel for each step on a GPU, if a trial agrees with torch; else torch."""
    ours = kernels("triton_medusa", there=device.type == "cuda")
    if ours is None:
        return IN_TORCH
    fused = _Steps(lambda *inputs: Walk(*ours.walk(*inputs)), ours.lay_out)
    return checked(fused, IN_TORCH, partial(_try, device=device), "trees are verified and laid out")


@torch.inference_mode()
def _try(steps: _Steps, device: torch.device) -> None:
    """Lay out a small tree and walk down it, and compare with torch."""
    tree = [[0, 2, 1, 4], [7, 9, 8, 6], [-1, 0, -1, 2], [-0.1, -0.2, -2.5, -3], [0, 0, 0, 0]]
    columns = torch.tensor(tree, dtype=torch.float64, device=device)
    start, slots = torch.tensor([5, 20, 3], device=device), torch.arange(8, 16, device=device)
    size = TreeSize(4, 3, 0.06)  # too high for the last token
    tables = [way.lay_out(size, columns, start, slots) for way in (steps, IN_TORCH)]
    top = torch.tensor([7, 9, 1, 2, 3], device=device)[:, None]
    log_probs = -torch.arange(50.0, device=device).view(5, 10)
    hidden = torch.arange(180, device=device).view(5, 4, 9).bfloat16()
    inputs = [1, -1], top, log_probs, hidden, tables[1]
    ours, theirs = (way.walk(*inputs) for way in (steps, IN_TORCH))
    for one, other in zip((tables[0], *ours), (tables[1], *theirs), strict=True):
        apart = float((one - other).abs().max())
        if not apart < CLOSE:
            raise ValueError(f"a tree differs by {apart:.2g} from torch")
