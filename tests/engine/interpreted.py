"""The Triton kernels against the same steps in torch, run without a GPU by Triton's interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.testing import assert_close

from engine import triton_attention, triton_layer
from engine.backend import Reading
from engine.triton_layer import Norm
from engine.triton_reading import read
from tests.engine import test_blocks as steps

torch.manual_seed(0)

for rows, visible in ((5, 70), (16, 130), (1, 512), (3, 1100)):
    query, (keys, values) = torch.randn(rows, 9, 64), torch.randn(2, 3, 1200, 64)
    mask = torch.rand(rows, visible) < 0.3
    mask[:, 3] = True
    given = (query, keys, values, mask, 0.125)
    assert_close(triton_attention.attend(*given), steps.attend(*given), rtol=1e-4, atol=1e-5)

norms = Norm(torch.rand(576), 1e-5), Norm(torch.rand(64), 1e-5), Norm(torch.rand(64), 1e-5)
hidden, added = torch.randn(2, 4, 576)
assert_close(triton_layer.normalize(hidden, norms[0]), steps.normalize(hidden, norms[0]))
both = [way.add_and_normalize(hidden, added, norms[0]) for way in (triton_layer, steps)]
assert_close(*both)

joined, angles = torch.randn(4, 15 * 64), tuple(torch.rand(2, 4, 64))
for own in (None, norms[1:]):
    found = []
    for way in (triton_layer, steps):
        keys, values = torch.zeros(2, 3, 10, 64)
        slots = torch.tensor([7, 2, 9, 0])
        found.append((way.turn_and_write(joined, angles, slots, keys, values, own), keys, values))
    assert_close(*found)

joined = torch.randn(3, 2 * 1536)
assert_close(triton_layer.gate(joined), steps.gate(joined))

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
