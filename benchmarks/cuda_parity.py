"""Checks on a GPU that accelerated runs write what plain runs write.

    python benchmarks/cuda_parity.py

In float32 on random weights of SmolLM2-135M's shape: tokens and log-probabilities with CUDA graphs
and fused layers and without, tokens against `generate`, growing, threads, a model that cannot be
recorded, a model that changes between comparisons, memory. Exits with 1 if a check fails. Needs
torch and transformers only.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine.accel.accelerated_pool as accelerated
from benchmarks.compare import PROMPT, SEED, SIX, generate
from benchmarks.random_model import random_model
from engine.accel.accelerated_pool import GraphPool
from engine.accel.medusa_pipeline import MedusaPipeline
from engine.drafting.heads import Heads
from engine.models.model import Model
from engine.trace import Trace
from playground import Playground

# isort: split
import torch

OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("beam_sample", {"num_beams": 3}),
    ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}),
    ("sample", {"num_return_sequences": 3, "typical_p": 0.8}),
    ("dola", {}),
    ("prompt_lookup", {}),
    ("early_exit", {"assistant_early_exit": 4}),
    ("greedy", {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}),
]
OFF = mock.patch.dict(os.environ, PLAYGROUND_ACCEL="off")
failures: list[str] = []


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    model = random_model("cuda", torch.float32)
    lab = Playground(model)
    lab.compare(PROMPT, ["greedy"], max_new_tokens=1)
    with mock.patch.object(accelerated, "fuse", return_value="switched off"):
        graphs = Playground(model)
    with OFF:
        slow = Playground(model)
    same(lab, slow, "fused layers")
    same(graphs, slow, "graphs alone")
    print(lab.backend_status, graphs.backend_status, slow.backend_status, sep="\n")
    check("layers are fused", fused(lab) and not fused(graphs) and not fused(slow))
    check("shapes were recorded", recorded(lab) > 0 and recorded(slow) == 0)
    for choice in SIX:
        [trace] = lab.compare(PROMPT, [choice], max_new_tokens=64, seed=SEED)
        expected = generate(lab.model, *choice, 64)
        check(f"{choice[0]} {choice[1]}: tokens of generate", tokens_of([trace])[0] == expected)
    growing(lab, slow)
    drafting(model)
    threads(lab)
    unrecordable(model)
    changing(model)
    memory(lab)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    sys.exit(bool(failures))


def same(lab: Playground, slow: Playground, how: str) -> None:
    """Accelerated runs give what plain runs give."""
    for name, choices, tokens in (
        ("six", SIX, 96),
        ("others", OTHERS[:4], 24),
        ("drafts", OTHERS[4:], 24),
    ):
        shared = {"max_new_tokens": tokens, "seed": SEED}
        ours = lab.compare(PROMPT, choices, **shared)
        with OFF:
            theirs = slow.compare(PROMPT, choices, **shared)
        what = f"{how}, {name}"
        check(f"{what}: tokens", tokens_of(ours) == tokens_of(theirs))
        check(f"{what}: log-probabilities within 1e-3", apart(ours, theirs) < 1e-3)
        check(f"{what}: nothing failed", not [trace.error for trace in ours if trace.error])


def growing(lab: Playground, slow: Playground) -> None:
    """A text that outgrows what the pool was made for."""
    prompt = PROMPT * 11
    shared = {"max_new_tokens": 200, "seed": SEED}
    ours = lab.compare(prompt, SIX[:2], **shared)
    with OFF:
        theirs = slow.compare(prompt, SIX[:2], **shared)
    check("a pool that grows: tokens", tokens_of(ours) == tokens_of(theirs))


def drafting(model: Model) -> None:
    """Pipelined Medusa rounds give the text of greedy decoding."""
    output: Any = model.module.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
    weight, kept = output.weight.detach(), torch.arange(8192, device=model.device)
    heads = Heads(weight, weight, kept, inner=64, depth=4, layers=[10, -1]).to(model.device)
    lab = Playground(model, heads=heads.requires_grad_(False))
    graphs, gone, drafted = lab._drafts._trees.graphs, list[bool](), MedusaPipeline.take_ready

    def watched(self: MedusaPipeline, *args: Any) -> Any:
        there = drafted(self, *args)
        gone.append(there is not None)
        return there

    [greedy] = lab.compare(PROMPT, ["greedy"], max_new_tokens=48)
    for size in (15, 31, 47):
        with mock.patch.object(MedusaPipeline, "take_ready", watched):
            way = ("medusa", {"medusa_tokens": size})
            [trace] = lab.compare(PROMPT, [way], max_new_tokens=48)
        what = f"{size} drafted tokens a round"
        check(f"{what}: tokens of greedy", tokens_of([trace]) == tokens_of([greedy]))
    check("rounds of drafts went ahead", bool(gone) and all(gone))
    check("rounds of drafts were recorded", graphs.count > 0 and graphs._tries > 0)


def threads(lab: Playground) -> None:
    """Several callers at once get what each gets alone."""
    found: dict[int, list[list[int]]] = {}

    def work(seed: int) -> None:
        found[seed] = tokens_of(lab.compare(PROMPT, SIX, max_new_tokens=24, seed=seed))

    at_once = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    alone = [tokens_of(lab.compare(PROMPT, SIX, max_new_tokens=24, seed=s)) for s in range(4)]
    check("four callers at once: tokens", [found.get(seed) for seed in range(4)] == alone)


def unrecordable(model: Any) -> None:
    """A model whose pass waits for the host cannot be recorded and runs without graphs."""

    def wait_for_host(module: Any, args: Any, output: Any) -> None:
        output[0].sum().item()

    plain = Playground(model).compare(PROMPT, SIX[:1], max_new_tokens=8)
    hook = model.module.model.layers[3].register_forward_hook(wait_for_host)
    lab = Playground(model)
    traces = lab.compare(PROMPT, SIX[:1], max_new_tokens=8)
    hook.remove()
    check("a model that cannot be recorded: tokens", tokens_of(traces) == tokens_of(plain))
    check("a model that cannot be recorded: no recording", recorded(lab) == 0)
    again = lab.compare(PROMPT, SIX, max_new_tokens=8, seed=1)
    check("and later runs work", not [trace.error for trace in again if trace.error])


def memory(lab: Playground) -> None:
    """Nothing grows with the number of comparisons, and a playground that goes takes all along."""

    def used() -> float:
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated() / 2**20

    lab.compare(PROMPT, SIX, max_new_tokens=32)
    before = used()
    for seed in range(10):
        lab.compare(PROMPT, SIX, max_new_tokens=32, seed=seed)
    after = used()
    print(f"memory {before:.0f} MiB, after ten comparisons {after:.0f} MiB, shapes {recorded(lab)}")
    check("memory is flat", after - before < 20)


def changing(model: Model) -> None:
    """A change of weights takes effect in the next comparison."""
    lab = Playground(model)
    lab.compare(PROMPT, SIX[:1], max_new_tokens=8)
    weight: Any = model.module.model.layers[2].mlp.up_proj.weight
    before = weight.data.clone()
    for flipped in (0, 1):
        if flipped:
            weight.data = before.flip(1).contiguous()
        else:
            weight.data.copy_(before.flip(0))
        ours = lab.compare(PROMPT, SIX[:1], max_new_tokens=8)
        theirs = Playground(model).compare(PROMPT, SIX[:1], max_new_tokens=8)
        check("a weight that changes: tokens", tokens_of(ours) == tokens_of(theirs))
    weight.data = before


def recorded(lab: Playground) -> int:
    pool = lab._backends._pool
    return pool.graphs.count if isinstance(pool, GraphPool) else 0


def fused(lab: Playground) -> bool:
    return "fused layers" in lab.backend_status.accelerations


def tokens_of(traces: list[Trace]) -> list[list[int]]:
    return [list(trace.sequences[0].token_ids) if trace.sequences else [] for trace in traces]


def apart(ours: list[Trace], theirs: list[Trace]) -> float:
    """The largest difference of a step's log-probability."""
    pairs = zip(ours, theirs, strict=True)
    steps = [pair for a, b in pairs for pair in zip(a.steps, b.steps, strict=False)]
    both = [(a.raw, b.raw) for a, b in steps if a.raw is not None and b.raw is not None]
    return max(abs(one - other) for one, other in both)


def check(what: str, holds: bool) -> None:
    print(f"{'ok  ' if holds else 'FAIL'}  {what}", flush=True)
    if not holds:
        failures.append(what)


if __name__ == "__main__":
    main()
