"""The statistics of `NodeOutput.of` as Triton kernels that read each row of logits twice.

torch reads a row once for every statistic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from engine.trie.backend import BLOCK, TOP, NodeOutput

CHUNK = 4096  # tokens of one block of threads


@triton.jit
def _reduce_chunks(
    given,
    logits,
    highest,  # (rows, blocks) the highest logit of every block
    sums,  # (rows, chunks, 3) of exponentials, relative to the highest logit of the chunk
    size,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row, chunk, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    there = token < size
    x = tl.load(given + row * size + token, mask=there, other=-float("inf")).to(tl.float32)
    tl.store(logits + row * size + token, x, mask=there)
    of_blocks = tl.max(tl.reshape(x, [CHUNK // BLOCK, BLOCK]), 1)
    first = (row * chunks + chunk) * (CHUNK // BLOCK)
    tl.store(highest + first + tl.arange(0, CHUNK // BLOCK), of_blocks)
    best = tl.max(of_blocks, 0)
    cut = x == -float("inf")
    apart = tl.where(cut, 0.0, x - tl.where(best == -float("inf"), 0.0, best))
    weight = tl.where(cut, 0.0, tl.exp(apart))
    at = sums + (row * chunks + chunk) * 3
    tl.store(at, best)
    tl.store(at + 1, tl.sum(weight, 0))
    tl.store(at + 2, tl.sum(weight * apart, 0))


@triton.jit
def _log_probs(
    logits,
    sums,
    log_probs,
    entropy,
    spread,  # (rows, chunks) every chunk's share of the varentropy
    size,
    chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
) -> None:
    row, chunk = tl.program_id(0), tl.program_id(1)
    number = tl.arange(0, CHUNKS)
    real, at = number < chunks, sums + (row * chunks + number) * 3
    best = tl.load(at, mask=real, other=-float("inf"))
    highest = tl.max(best, 0)
    lower = tl.where(best == -float("inf"), 0.0, best - highest)
    weight = tl.where(best == -float("inf"), 0.0, tl.exp(lower))
    total = tl.load(at + 1, mask=real, other=0.0)
    moment = tl.load(at + 2, mask=real, other=0.0) + lower * total
    whole = tl.sum(weight * total, 0)
    # Relative to the highest logit: precise also where the model is confident.
    mean = tl.log(whole) - tl.sum(weight * moment, 0) / whole
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    there = token < size
    x = tl.load(logits + row * size + token, mask=there, other=-float("inf"))
    log_prob = (x - highest) - tl.log(whole)
    tl.store(log_probs + row * size + token, log_prob, mask=there)
    from_mean = tl.where(x == -float("inf"), 0.0, log_prob + mean)
    tl.store(spread + row * chunks + chunk, tl.sum(tl.exp(log_prob) * from_mean * from_mean, 0))
    if chunk == 0:
        tl.store(entropy + row, mean)


@triton.jit
def _top_tokens(
    logits,
    log_probs,
    highest,
    spread,
    top,
    summary,  # (rows, 2, TOP + 1) the same and their log-probabilities, then both entropies
    entropy,
    varentropy,
    size,
    blocks,
    chunks,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    CHUNKS: tl.constexpr,
    TOP: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    number, of_row = tl.arange(0, CHUNKS), tl.arange(0, BLOCKS)
    shares = tl.load(spread + row * chunks + number, mask=number < chunks, other=0.0)
    tl.store(varentropy + row, tl.sum(shares, 0))
    tokens, numbers = summary + row * 2 * (TOP + 1), summary + (row * 2 + 1) * (TOP + 1)
    tl.store(tokens + TOP, tl.load(entropy + row).to(tl.float64))
    tl.store(numbers + TOP, tl.sum(shares, 0).to(tl.float64))
    most = tl.load(highest + row * blocks + of_row, mask=of_row < blocks, other=-float("inf"))
    value, last = float("inf"), -1
    for place in range(TOP):
        block = tl.argmax(most, 0)
        token = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(logits + row * size + token, mask=token < size, other=-float("inf"))
        # Exclude those found before: all that are higher, and equal ones further left.
        x = tl.where((x > value) | ((x == value) & (token <= last)), -float("inf"), x)
        value, last = tl.max(x, 0), block * BLOCK + tl.argmax(x, 0)
        tl.store(top + row * TOP + place, last.to(tl.int64))
        tl.store(tokens + place, last.to(tl.float64))
        own = tl.load(log_probs + row * size + last).to(tl.float64)
        tl.store(numbers + place, own)
        left = tl.max(tl.where(token == last, -float("inf"), x), 0)
        most = tl.where(of_row == block, left, most)


def read(given: Tensor, hidden: Tensor | None = None, width: int | None = None) -> NodeOutput:
    """The statistics of logits, (rows, vocab), cut or padded to ``width`` tokens."""
    if width is not None and width != given.shape[-1]:
        given = pad(given, (0, width - given.shape[-1]), value=-torch.inf)
    given = given.contiguous()
    rows, size = given.shape
    chunks = triton.cdiv(size, CHUNK)
    blocks = chunks * (CHUNK // BLOCK)
    many = triton.next_power_of_2(chunks)
    logits, log_probs = given.new_empty(2, rows, size, dtype=torch.float32)
    highest = logits.new_empty(rows, blocks)
    sums, spread = logits.new_empty(rows, chunks, 3), logits.new_empty(rows, chunks)
    entropy, varentropy = logits.new_empty(2, rows)
    top = torch.empty(rows, min(TOP, size), dtype=torch.long, device=given.device)
    hidden = logits.new_empty(rows, 0, 0) if hidden is None else hidden
    summary = logits.new_empty(rows, 2, top.shape[1] + 1, dtype=torch.float64)
    _reduce_chunks[rows, chunks](
        given, logits, highest, sums, size, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=8
    )
    _log_probs[rows, chunks](
        logits, sums, log_probs, entropy, spread, size, chunks, CHUNK=CHUNK, CHUNKS=many
    )
    _top_tokens[(rows,)](
        logits,
        log_probs,
        highest,
        spread,
        top,
        summary,
        entropy,
        varentropy,
        size,
        blocks,
        chunks,
        BLOCK=BLOCK,
        BLOCKS=triton.next_power_of_2(blocks),
        CHUNKS=many,
        TOP=top.shape[1],
        num_warps=1,
    )
    return NodeOutput(logits, log_probs, entropy, varentropy, top, summary, hidden)
