"""Rounds of drafts that a GPU goes on with by itself.

It judges a tree of drafts, drafts the next one and reads it before the host knows of any of that;
the host learns and tells of a round while the GPU reads the next. Else the GPU would wait for the
host in every round, nearly as long as it reads. Knows recorded ticks and draft heads. Refuses to
know what is made of a round: who does not agree with where the GPU went lets that go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Sequence
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
from engine.accel.kernels import kernels, tried
from engine.drafting.draft_tree import Size, Tree, TreeDrafter, tree_of
from engine.errors import PlaygroundError
from engine.run import Run
from engine.trie.backend import Best, Reading, Unnamed, after_layers
from engine.trie.node import Node
from engine.trie.pool import ancestor_rows
from engine.trie.slots import PADDING

START = 3  # numbers: the token that a tree stands behind, depth and position of the cell before
CLOSE = 1e-3  # how far probabilities may be off where kernels of our own are tried


class Judged(NamedTuple):
    """What the model says of a tree of drafts, by its most probable tokens."""

    own: list[int]  # the one it takes before the tree, and behind each of its tokens
    log_probs: list[float]  # of each token of the tree
    higher: list[int]  # how many others are more probable there
    best: Best  # and which


class Drafted(NamedTuple):
    """A tree that is drafted and read already."""

    tree: Tree
    nodes: list[Node]  # before it, and behind each of its tokens
    ms: float  # that it took the draft heads, and to judge the tree before


class _Going(NamedTuple):
    """What the device was given to do."""

    cells: Unnamed  # that it reads
    table: Tensor  # what it reads them by
    told: HostFuture  # how that came about
    drafting: tuple[_Moment, _Moment]  # from when until when, with the judging before it


class Ahead:
    """The rounds of one run."""

    def __init__(self, run: Run, size: Size) -> None:
        self._run = run
        self._heads = run.heads
        self._size = size
        self._ends = torch.tensor(sorted(run.end_tokens) or [-1])
        self._going: _Going | None = None
        self._next: tuple[list[int], Tree] | None = None  # the start it goes on from, and with what

    def possible(self, nodes: Sequence[Node]) -> bool:
        """Whether the device can go on from the tree at some nodes, the one before it first: they
        were read in one recorded tick, and nobody else wants anything."""
        pool, reading = nodes[0].evaluator.backend, nodes[0].place.reading
        return (
            self._run.unhindered
            and isinstance(pool, GraphPool)
            and 1 + self._heads.most(self._size) <= ROWS
            and all(
                node.place.reading is reading and node.place.row == row
                for row, node in enumerate(nodes)
            )
        )

    def judged(self, nodes: Sequence[Node]) -> Generator[HostFuture, Tensor, Judged | None]:
        """What the model says of such a tree; the device goes on with the one behind the tokens
        that it takes. None where there is no room to go on."""
        evaluator, reading, known = nodes[0].evaluator, nodes[0].place.reading, self._going
        pool = evaluator.backend
        assert isinstance(pool, GraphPool), "it was asked whether this is possible"
        if known and known.cells.reading is reading:
            rows, table = len(known.cells.slots), known.table
        else:
            rows, table = len(nodes), _table(nodes)
        with evaluator.lock:
            try:
                cells = pool.unnamed(1 + self._heads.most(self._size))
            except PlaygroundError:
                return None
            self._going = going = self._launched(reading, rows, table, cells)
            pool.evaluate_ahead(cells, going.table)
        told = yield from fetch(going.told)
        count, shape = len(nodes), (rows, *reading.told.shape[1:])
        ends = accumulate([rows, rows, START, rows, prod(shape)])
        own, given, start, higher, best, columns = told.tensor_split([*ends])
        tree = tree_of(columns.view(5, -1).tolist(), self._size.least)
        self._next = start.long().tolist(), tree
        return Judged(
            own[:count].long().tolist(),
            given[1:count].tolist(),
            higher[1:count].long().tolist(),
            Best.of(best.view(shape)[:count]),
        )

    def drafted(self, last: Node, token: int) -> Drafted | None:
        """The tree behind a token that the model took at a node, if the device has gone there."""
        going, following = self._going, self._next
        self._next = None
        if not going or not following or following[0] != [token, last.cell.depth, last.cell.slot]:
            self._going = None
            return None
        tree = following[1]

        def named(row: int, above: Node, token: int) -> Node:
            cell, place = going.cells.name(row, above.cell, token)
            return above.below([token], cell, place, self._run.recorder.step_at)

        nodes = [named(0, last, token)]
        for above, own in zip(tree.parents, tree.tokens, strict=True):
            nodes.append(named(len(nodes), nodes[above + 1], own))
        last.evaluator.know({node.cell: node.place for node in nodes})
        since, until = going.drafting
        return Drafted(tree, nodes, until.ms_since(since))

    def _launched(self, reading: Reading, rows: int, table: Tensor, cells: Unnamed) -> _Going:
        """Have the tree in some rows judged, and the next one drafted for some cells, as one
        recording."""
        heads, size, device = self._heads, self._size, reading.logits.device
        slots = [*cells.slots, *[PADDING] * (bucket(len(cells.slots)) - len(cells.slots))]
        self._ends = self._ends.to(device)
        said = [getattr(reading, name)[:rows] for name in _READ]
        inputs = *said, table, self._ends, torch.tensor(slots)
        work = partial(_gone, _steps(device), heads, size)
        shape: Hashable = (_gone, size, *(given.shape for given in inputs))
        with heads.lock:
            since = _Moment(device)
            gone: _Gone = heads.graphs.play(work, shape, *inputs)
            until = _Moment(device)
            return _Going(cells, gone.table.clone(), HostFuture(gone.told), (since, until))


class _Moment:
    """A moment in what a device does."""

    def __init__(self, device: torch.device) -> None:
        self._time, self._event = time.perf_counter(), record_event(device, timed=True)

    def ms_since(self, earlier: _Moment) -> float:
        """How long it took from another one."""
        if self._event and earlier._event:
            return float(earlier._event.elapsed_time(self._event))
        return (self._time - earlier._time) * 1000


class Verdict(NamedTuple):
    """How far a tree is right, by the model's most probable tokens."""

    told: Tensor  # each row's own token, its log-probability, the start; float64 holds them all
    start: Tensor  # (START,)
    features: Tensor  # (1, layers, width) what draft heads read there
    parents: Tensor  # (rows,) of the first row that itself


def _judge(
    layers: Sequence[int], top: Tensor, log_probs: Tensor, hidden: Tensor, table: Tensor
) -> Verdict:
    """Walk down a tree for as long as its tokens are the most probable ones."""
    rows, own = len(top), top[:, 0]
    tokens, depths, slots = table[:3, :rows]
    inside = table[4 : 4 + rows, :rows].bool()  # (rows, rows) who is above whom, or the same
    above = inside & ~torch.eye(rows, dtype=torch.bool, device=inside.device)
    parents = (above * (1 + depths)).argmax(-1)
    right = own[parents] == tokens
    kept = (right | ~inside)[:, 1:].all(-1)
    end = (kept * (1 + depths)).argmax(-1, keepdim=True)
    start = torch.cat([own[end], depths[end], slots[end]])
    given = log_probs[parents, tokens]
    told = torch.cat([own.double(), given.double(), start.double()])
    return Verdict(told, start, after_layers(hidden, layers)[end], parents)


def _lay_out(size: Size, columns: Tensor, start: Tensor, slots: Tensor) -> Tensor:
    """What a tick reads a tree by, (4 + slots, slots), the token that it stands behind first."""
    numbers, tokens, above = columns[:3].long()
    places = (above[:, None] == numbers).long().argmax(-1)
    parents = pad(torch.where(above < 0, 0, 1 + places), (1, 0))  # of the first row that itself
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
    # What the tree leaves out is padding, and so is what is missing for a shape.
    left = pad(columns[3].exp() >= size.least, (1, 0), value=True)
    table = torch.cat([torch.stack(cells), inside * left[:, None]]) * left
    missing = len(slots) - rows
    return pad(table, (0, missing, 0, missing))


def _table(nodes: Sequence[Node]) -> Tensor:
    """The same of nodes that the host knows."""
    cells = [node.cell for node in nodes]
    _, inside = ancestor_rows(cells)
    rows = [(cell.token, cell.depth, cell.slot, PADDING) for cell in cells]
    return torch.cat([torch.tensor(rows).T, inside])


class _Steps(NamedTuple):
    """What a device does between two ticks, but for the drafting."""

    judge: Callable[..., Verdict]
    lay_out: Callable[..., Tensor]


IN_TORCH = _Steps(_judge, _lay_out)


_READ = ("logits", "told", "top_tokens", "log_probs", "hidden")  # of a reading


class _Gone(NamedTuple):
    told: Tensor  # how a tree was judged, what else is told of it, the columns of the next one
    table: Tensor  # (4 + rows, rows) what a tick reads that by


def _gone(
    steps: _Steps,
    heads: TreeDrafter,
    size: Size,
    logits: Tensor,
    told: Tensor,
    top: Tensor,
    log_probs: Tensor,
    hidden: Tensor,
    table: Tensor,
    ends: Tensor,
    slots: Tensor,
) -> _Gone:
    """Judge a tree, and draft the one behind it for the cells of some positions."""
    judged = steps.judge(heads.layers, top, log_probs, hidden, table)
    columns = heads.growing(size)(judged.features, judged.start[:1], ends)
    before, tokens = logits[judged.parents], table[0, : len(logits), None]
    higher = (before > before.gather(1, tokens)).sum(-1)
    every = torch.cat([judged.told, higher.double(), told.flatten(), columns.flatten()])
    return _Gone(every, steps.lay_out(size, columns, judged.start, slots))


@cache
def _steps(device: torch.device) -> _Steps:
    """Those above; on a GPU each as one kernel of our own, if a try gives the same."""
    ours = kernels("triton_medusa", there=device.type == "cuda")
    if ours is None:
        return IN_TORCH
    few = _Steps(ours.judge, ours.lay_out)
    return tried(few, IN_TORCH, partial(_try, device=device), "trees are judged and laid out")


@torch.inference_mode()
def _try(steps: _Steps, device: torch.device) -> None:
    """Lay out a small tree and walk down it, and see that both are done as they must be."""
    tree = [[0, 2, 1, 4], [7, 9, 8, 6], [-1, 0, -1, 2], [-0.1, -0.2, -2.5, -3], [0, 0, 0, 0]]
    columns = torch.tensor(tree, dtype=torch.float64, device=device)
    start, slots = torch.tensor([5, 20, 3], device=device), torch.arange(8, 16, device=device)
    size = Size(4, 3, 0.06)  # the last token is left out
    tables = [way.lay_out(size, columns, start, slots) for way in (steps, IN_TORCH)]
    top = torch.tensor([7, 9, 1, 2, 3], device=device)[:, None]
    log_probs = -torch.arange(50.0, device=device).view(5, 10)
    hidden = torch.arange(180, device=device).view(5, 4, 9).bfloat16()
    said = [1, -1], top, log_probs, hidden, tables[1]
    ours, theirs = (way.judge(*said) for way in (steps, IN_TORCH))
    for one, other in zip((tables[0], *ours), (tables[1], *theirs), strict=True):
        apart = float((one - other).abs().max())
        if not apart < CLOSE:
            raise ValueError(f"a tree in few kernels is off by {apart:.2g}")
