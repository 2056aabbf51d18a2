"""The Triton kernels against the same steps in torch, run without a GPU by Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.testing import assert_close

from engine import draft_tree, torch_layer, triton_drafting, triton_layer
from engine.backend import Reading
from engine.draft_tree import Size
from engine.heads import Heads
from engine.torch_layer import Norm
from engine.triton_reading import read

WAYS = (triton_layer, torch_layer)

torch.manual_seed(0)

for rows, visible in ((5, 70), (16, 130), (1, 512), (3, 1100)):
    query, (keys, values) = torch.randn(rows, 9, 64), torch.randn(2, 3, 1200, 64)
    mask = torch.rand(rows, visible) < 0.3
    mask[:, 3] = True
    angles = torch.rand(2, 1, rows, 64)
    masks = [way.ready(angles, mask, 3).mask for way in WAYS]
    given = zip(WAYS, masks, strict=True)
    found = [way.attend(query, keys, values, own, 0.125) for way, own in given]
    assert_close(*found, rtol=1e-4, atol=1e-5)

norms = Norm(torch.rand(576), 1e-5), Norm(torch.rand(64), 1e-5), Norm(torch.rand(64), 1e-5)
hidden, added = torch.randn(2, 4, 576)
assert_close(*(way.normalize(hidden, norms[0]) for way in WAYS))
assert_close(*(way.add_and_normalize(hidden, added, norms[0]) for way in WAYS))

joined, half = torch.randn(4, 15 * 64), torch.rand(2, 1, 4, 32)
angles, mask = torch.cat([half, half], -1), torch.ones(4, 10, dtype=torch.bool)
for own in (None, norms[1:]):
    found = []
    for way in WAYS:
        keys, values = torch.zeros(2, 3, 10, 64)
        slots, turned = torch.tensor([7, 2, 9, 0]), way.ready(angles, mask, 3).angles
        found.append((way.turn_and_write(joined, turned, slots, keys, values, own), keys, values))
    assert_close(*found)

joined = torch.randn(3, 2 * 1536)
assert_close(*(way.gate(joined) for way in WAYS))

for size, width in ((49_152, None), (5000, None), (300, 350), (5000, 4900)):
    logits = torch.randn(3, size) * 4
    logits[1] *= 8  # a sure model
    logits[2] = logits[2].round()  # ties
    if size == 5000:
        logits[0, ::2] = -torch.inf
    ours, theirs = (way(logits, torch.empty(3), width) for way in (read, Reading.of))
    for name in ("logits", "log_probs", "entropy", "varentropy"):
        assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)
    best = [each.logits.gather(1, each.top_tokens) for each in (ours, theirs)]
    assert_close(*best, rtol=0, atol=0)
    assert all(len(set(row)) == len(row) for row in ours.top_tokens.tolist())


def heads(width: int, kept: int, layers: int, sharp: float = 6.0) -> Heads:
    embedding, output = torch.randn(300, width), torch.randn(300, width) * sharp / width**0.5
    return Heads(embedding, output, torch.randperm(300)[:kept], 24, 4, range(layers)).eval()


def same_trees(heads: Heads, size: Size, states: torch.Tensor, ends: torch.Tensor) -> int:
    ways = (triton_drafting.grown, draft_tree._grown)
    with torch.inference_mode():
        rows = [way(heads, size, states, torch.tensor([7]), ends) for way in ways]
    assert all(each.dtype == torch.float64 for each in rows)
    ours, theirs = (draft_tree.tree_of(each.tolist(), size.least) for each in rows)
    assert_close(torch.tensor(ours.log_probs), torch.tensor(theirs.log_probs))
    assert ours._replace(log_probs=[]) == theirs._replace(log_probs=[])
    return len(ours.tokens)


nothing = torch.tensor([-1])
for width, kept, layers in ((32, 300, 1), (24, 131, 3), (40, 9, 2)):
    drafting, states = heads(width, kept, layers), torch.randn(1, layers, width)
    some = drafting.kept[:2].sort().values
    for tokens, depth, ends in ((1, 4, some), (2, 3, nothing), (7, 4, some), (48, 2, some)):
        assert same_trees(drafting, Size(tokens, depth), states, ends) == tokens
    for size, ends in ((Size(48, 1), some), (Size(16, 2), drafting.kept)):
        assert same_trees(drafting, size, states, ends) == min(kept, 16)
    draft_tree._try(drafting, triton_drafting.grown)
states = torch.randn(1, 1, 32)
assert same_trees(heads(32, 300, 1), Size(48, 4), states, nothing) == 48
certain = heads(32, 300, 1, sharp=1e6)  # every token is as probable as the one before it
assert same_trees(certain, Size(12, 4), states, nothing) == 4
