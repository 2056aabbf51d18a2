"""The Triton kernels against the same steps in torch, run without a GPU by Triton's interpreter."""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
import triton.language as tl
from torch.testing import assert_close
from triton.runtime import interpreter

from engine.accel import medusa_pipeline as pipeline
from engine.accel import torch_layer, triton_drafting, triton_layer, triton_medusa
from engine.accel.graphs import bucket
from engine.accel.torch_layer import Norm
from engine.accel.triton_statistics import read
from engine.drafting import draft_tree
from engine.drafting.heads import Heads
from engine.drafting.tree_size import TreeSize
from engine.trie.backend import NodeOutput

# The interpreter patches Triton's language again for each function that a kernel calls, which takes
# half of the time: patch it once.
for prepared in (triton_layer._gate, tl.zeros):
    interpreter._patch_lang(prepared.fn)
interpreter._patch_lang = lambda fn: SimpleNamespace(restore=lambda: None)

BACKENDS = (triton_layer, torch_layer)

torch.manual_seed(0)

for rows, visible in ((5, 70), (16, 130), (1, 512), (3, 1100)):
    query, (keys, values) = torch.randn(rows, 9, 64), torch.randn(2, 3, 1200, 64)
    mask = torch.rand(rows, visible) < 0.3
    mask[:, 3] = True
    rotary = torch.rand(2, 1, rows, 64)
    masks = [way.prepare(rotary, mask, 3).mask for way in BACKENDS]
    given = zip(BACKENDS, masks, strict=True)
    found = [way.attend(query, keys, values, own, 0.125) for way, own in given]
    assert_close(*found, rtol=1e-4, atol=1e-5)

norms = Norm(torch.rand(576), 1e-5), Norm(torch.rand(64), 1e-5), Norm(torch.rand(64), 1e-5)
hidden, added = torch.randn(2, 4, 576)
assert_close(*(way.normalize(hidden, norms[0]) for way in BACKENDS))
assert_close(*(way.add_and_normalize(hidden, added, norms[0]) for way in BACKENDS))

joined, half = torch.randn(4, 15 * 64), torch.rand(2, 1, 4, 32)
rotary, mask = torch.cat([half, half], -1), torch.ones(4, 10, dtype=torch.bool)
for own in (None, norms[1:]):
    found = []
    for way in BACKENDS:
        keys, values = torch.zeros(2, 3, 10, 64)
        slots, shared = torch.tensor([7, 2, 9, 0]), way.prepare(rotary, mask, 3)
        found.append(
            (way.rotate_and_store(joined, shared.rotary, slots, keys, values, own), keys, values)
        )
    assert_close(*found)

joined = torch.randn(3, 2 * 1536)
assert_close(*(way.gate(joined) for way in BACKENDS))

for size, width in ((49_152, None), (5000, None), (300, 350), (5000, 4900)):
    logits = torch.randn(3, size) * 4
    logits[1] *= 8  # a confident model
    logits[2] = logits[2].round()  # ties
    if size == 5000:
        logits[0, ::2] = -torch.inf
    ours, theirs = (way(logits, torch.empty(3), width) for way in (read, NodeOutput.of))
    for name in ("logits", "log_probs", "entropy", "varentropy"):
        assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)
    best = [each.logits.gather(1, each.top_tokens) for each in (ours, theirs)]
    assert_close(*best, rtol=0, atol=0)
    assert all(len(set(row)) == len(row) for row in ours.top_tokens.tolist())
    tokens, numbers = ours.summary.unbind(1)
    assert torch.equal(tokens[:, :-1].long(), ours.top_tokens)
    assert torch.equal(numbers[:, :-1].float(), ours.log_probs.gather(1, ours.top_tokens))
    assert torch.equal(tokens[:, -1].float(), ours.entropy)
    assert torch.equal(numbers[:, -1].float(), ours.varentropy)


def heads(width: int, kept: int, layers: int, sharp: float = 6.0) -> Heads:
    embedding, output = torch.randn(300, width), torch.randn(300, width) * sharp / width**0.5
    return Heads(embedding, output, torch.randperm(300)[:kept], 24, 4, range(layers)).eval()


def same_trees(heads: Heads, size: TreeSize, states: torch.Tensor, ends: torch.Tensor) -> int:
    ways = (triton_drafting.grown, draft_tree._grow)
    with torch.inference_mode():
        rows = [way(heads, size, states, torch.tensor([7]), ends) for way in ways]
    assert all(each.dtype == torch.float64 for each in rows)
    ours, theirs = (draft_tree.tree_of(each.tolist(), size.min_probability) for each in rows)
    assert_close(torch.tensor(ours.log_probs), torch.tensor(theirs.log_probs))
    assert ours._replace(log_probs=[]) == theirs._replace(log_probs=[])
    return len(ours.tokens)


nothing = torch.tensor([-1])
for width, kept, layers in ((32, 300, 1), (24, 131, 3), (40, 9, 2)):
    drafting, states = heads(width, kept, layers), torch.randn(1, layers, width)
    some = drafting.kept[:2].sort().values
    for tokens, depth, ends in ((1, 4, some), (2, 3, nothing), (7, 4, some), (48, 2, some)):
        assert same_trees(drafting, TreeSize(tokens, depth), states, ends) == tokens
    for size, ends in ((TreeSize(48, 1), some), (TreeSize(16, 2), drafting.kept)):
        assert same_trees(drafting, size, states, ends) == min(kept, 16)
draft_tree._try(drafting, triton_drafting.grown)
states = torch.randn(1, 1, 32)
assert same_trees(heads(32, 300, 1), TreeSize(48, 4), states, nothing) == 48
certain = heads(32, 300, 1, sharp=1e6)  # every token is as probable as the one before it
assert same_trees(certain, TreeSize(12, 4), states, nothing) == 4

TRITON = pipeline._Steps(
    lambda *inputs: pipeline.Walk(*triton_medusa.walk(*inputs)), triton_medusa.lay_out
)
IMPLEMENTATIONS = (TRITON, pipeline.IN_TORCH)
FIRST = 41  # the depth of a table's first row
NONE = -1  # a token that is in no tree


def table_of(tokens: int, left: int) -> torch.Tensor:
    """The table of a random tree, pruned to ``left`` tokens and padded to a bucket."""
    drafting, states, size = heads(24, 131, 2), torch.randn(1, 2, 24), TreeSize(tokens, 4)
    with torch.inference_mode():
        columns = draft_tree._grow(drafting, size, states, torch.tensor([7]), nothing)
    assert columns.shape == (5, tokens)
    if left < tokens:
        size = size._replace(min_probability=float(columns[3, left - 1 : left + 1].mean().exp()))
    slots = 1 + torch.randperm(200)[: bucket(1 + tokens)]
    given = columns, torch.tensor([7, FIRST - 1, 9]), slots
    ours, theirs = (way.lay_out(size, *given) for way in IMPLEMENTATIONS)
    assert_close(ours, theirs, rtol=0, atol=0)
    assert ours[2].count_nonzero() == 1 + left
    return ours


def model_tokens(table: torch.Tensor, rows: int, sure: float) -> torch.Tensor:
    """The model's token after each row: with probability ``sure`` the row's first child."""
    own = torch.full((rows,), NONE)
    for row in range(rows - 1, 0, -1):
        above = table[4 + row, :row].nonzero()
        if len(above) and torch.rand(()) < sure:
            own[above[-1]] = table[0, row]
    return own


def end_of(table: torch.Tensor, rows: int, sure: float) -> tuple[int, int]:
    """Where the model's walk down the tree ends: its token there, and the depth."""
    top = torch.stack([model_tokens(table, rows, sure), torch.randint(300, (rows,))], 1)
    log_probs, hidden = torch.randn(rows, 300).log_softmax(-1), torch.randn(rows + 2, 5, 24)
    inputs_of_walk = [1, 3, -1], top, log_probs, hidden.bfloat16(), table
    ours, theirs = (way.walk(*inputs_of_walk) for way in IMPLEMENTATIONS)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    own, depth, slot = ours.start.tolist()
    assert [own, depth, slot] == theirs.start.tolist() == ours.packed[2 * rows :].tolist()
    return own, depth


for tokens, left in ((1, 1), (5, 3), (15, 15), (31, 20), (31, 31), (47, 47), (47, 2), (63, 63)):
    table, rows = table_of(tokens, left), 1 + tokens  # there may be more columns
    assert end_of(table, rows, sure=0.0) == (NONE, FIRST)
    own, depth = end_of(table, rows, sure=1.0)
    assert own == NONE and depth > FIRST
    for sure in (0.3, 0.6, 0.9):
        end_of(table, rows, sure)
    end_of(table[: 4 + rows, :rows], rows, sure=0.8)  # without padding, as the host builds it
pipeline._try(TRITON, torch.device("cpu"))
