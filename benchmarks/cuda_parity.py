"""Checks on a GPU what no test machine has: recorded ticks against ticks that are not recorded.

    python benchmarks/cuda_parity.py

In float32 on random weights of SmolLM2-135M's shape: tokens and log-probabilities with recordings
and without, tokens against `generate`, growing, threads, a model that cannot be recorded, memory.
Exits with 1 if anything is not as it must be. Needs torch and transformers only.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine.trie.pool  # before torch: it decides how torch's threads wait
from benchmarks.compare import PROMPT, SEED, SIX, generate
from benchmarks.random_model import random_model
from engine.accel.fusing import Fused
from engine.accel.medusa_pipeline import Ahead
from engine.drafting.heads import Heads
from engine.models.model import Model
from engine.trace import Trace
from engine.trie.cache_layer import Kernels
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
failures: list[str] = []


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    model = random_model("cuda", torch.float32)
    lab = Playground(model)
    lab.compare(PROMPT, ["greedy"], max_new_tokens=1)
    with mock.patch.object(engine.trie.pool, "quicken", return_value="switched off"):
        many = Playground(model)
        many.compare(PROMPT, ["greedy"], max_new_tokens=1)
        with mock.patch.object(engine.trie.pool, "recordable", return_value=False):
            slow = Playground(model)
            slow.compare(PROMPT, ["greedy"], max_new_tokens=1)
    check("layers run in few kernels", few(lab) and not few(many) and not few(slow))
    same(lab, slow, "few kernels")
    same(many, slow, "plain parts")
    fused = Fused.of(model.module)
    fused.begin()
    fused.wait()
    check("parts were compiled", fused.ready)
    same(many, slow, "compiled parts")
    check("shapes were recorded", recorded(lab) > 0 and recorded(slow) == 0)
    for choice in SIX:
        [trace] = lab.compare(PROMPT, [choice], max_new_tokens=64, seed=SEED)
        expected = generate(lab.model, *choice, 64)
        check(f"{choice[0]} {choice[1]}: tokens of generate", tokens_of([trace])[0] == expected)
    growing(lab, slow)
    drafting(model)
    threads(lab)
    refusing(model)
    memory(lab)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    sys.exit(bool(failures))


def same(lab: Playground, slow: Playground, how: str) -> None:
    """What recorded ticks give is what ticks give that are not."""
    for name, choices, tokens in (
        ("six", SIX, 96),
        ("others", OTHERS[:4], 24),
        ("drafts", OTHERS[4:], 24),
    ):
        shared = {"max_new_tokens": tokens, "seed": SEED}
        ours, theirs = (way.compare(PROMPT, choices, **shared) for way in (lab, slow))
        what = f"{how}, {name}"
        check(f"{what}: tokens with and without recordings", tokens_of(ours) == tokens_of(theirs))
        check(f"{what}: log-probabilities within 1e-3", apart(ours, theirs) < 1e-3)
        check(f"{what}: nothing failed", not [trace.error for trace in ours if trace.error])


def growing(lab: Playground, slow: Playground) -> None:
    """A text that outgrows what the pool was made for."""
    prompt = PROMPT * 11
    shared = {"max_new_tokens": 200, "seed": SEED}
    ours, theirs = (way.compare(prompt, SIX[:2], **shared) for way in (lab, slow))
    check("a pool that grows: tokens", tokens_of(ours) == tokens_of(theirs))


def drafting(model: Model) -> None:
    """Rounds of drafts that the GPU goes on with by itself write what greedy decoding writes."""
    output: Any = model.module.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
    weight, kept = output.weight.detach(), torch.arange(8192, device=model.device)
    heads = Heads(weight, weight, kept, inner=64, depth=4, layers=[10, -1]).to(model.device)
    lab = Playground(model, heads=heads.requires_grad_(False))
    graphs, gone, drafted = lab._drafts._trees.graphs, list[bool](), Ahead.drafted

    def watched(self: Ahead, *args: Any) -> Any:
        there = drafted(self, *args)
        gone.append(there is not None)
        return there

    [greedy] = lab.compare(PROMPT, ["greedy"], max_new_tokens=48)
    for size in (15, 31, 47):
        with mock.patch.object(Ahead, "drafted", watched):
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


def refusing(model: Any) -> None:
    """A model that asks the host in the middle of its pass runs step by step."""

    def asks(module: Any, args: Any, output: Any) -> None:
        output[0].sum().item()

    plain = Playground(model).compare(PROMPT, SIX[:1], max_new_tokens=8)
    hook = model.module.model.layers[3].register_forward_hook(asks)
    lab = Playground(model)
    traces = lab.compare(PROMPT, SIX[:1], max_new_tokens=8)
    hook.remove()
    check("a model that cannot be recorded: tokens", tokens_of(traces) == tokens_of(plain))
    check("a model that cannot be recorded: no recording", recorded(lab) == 0)
    again = lab.compare(PROMPT, SIX, max_new_tokens=8, seed=1)
    check("and it goes on", not [trace.error for trace in again if trace.error])


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


def recorded(lab: Playground) -> int:
    graphs = lab._backends._pool._graphs
    return graphs.count if graphs else 0


def few(lab: Playground) -> bool:
    return lab._backends._pool._plan.kernels is Kernels.FUSED


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
