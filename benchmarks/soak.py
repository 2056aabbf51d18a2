"""Runs random comparisons for a long time and checks that memory does not grow.

    python benchmarks/soak.py [--minutes 30] [--visitors 3] [--json FILE]

Threads run comparisons of random strategies, prompts and lengths on one playground; a quarter is
cancelled, a quarter abandoned. Twenty times, the memory of the process and the cache positions in
use are sampled. The second half of the samples is compared with the first, and a line is fitted to
all but the first two. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.settings import Limits
from playground import Playground

SAMPLES = 20
RUNS: list[Any] = [
    "greedy",
    ("sample", {"top_p": 0.9}),
    ("sample", {"temperature": 1.3, "top_k": 40}),
    ("beam_search", {"num_beams": 4}),
    ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0}),
    ("contrastive_search", {"top_k": 4, "penalty_alpha": 0.6}),
    "dola",
    "prompt_lookup",
    "early_exit",
]
WORDS = [
    "the",
    "sea",
    "a",
    "small",
    "boat",
    "lamp",
    "under",
    "wind",
    "letter",
    "she",
    "found",
    "and",
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--visitors", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    lab = Playground(limits=Limits())
    over = threading.Event()
    ends: list[Counter[str]] = [Counter() for _ in range(options.visitors)]
    began = memory()
    threads = [
        threading.Thread(target=visit, args=(lab, number, over, ends[number]))
        for number in range(options.visitors)
    ]
    for thread in threads:
        thread.start()
    samples: list[dict[str, Any]] = []
    for _ in range(SAMPLES):
        time.sleep(options.minutes * 60 / SAMPLES)
        done = sum(count.total() for count in ends)
        samples.append({"comparisons": done, "memory_MB": memory(), "cells": cells(lab)})
        # Not gc.get_objects(): it exposes tuples under construction, which breaks other threads.
        samples[-1]["blocks"] = sys.getallocatedblocks()
        print("  ".join(f"{name} {value}" for name, value in samples[-1].items()), flush=True)
    over.set()
    for thread in threads:
        thread.join()
    gc.collect()
    counts = dict(sum(ends, Counter()))
    end = {"comparisons": sum(counts.values()), **counts, "memory_MB_at_first": began}
    report(samples, {**end, "cells_at_the_end": cells(lab)}, options.minutes, options.json)


def report(
    samples: list[dict[str, Any]], end: dict[str, Any], minutes: float, file: Path | None
) -> None:
    half, settled = len(samples) // 2, [sample["memory_MB"] for sample in samples[2:]]
    per_sample = statistics.linear_regression(range(len(settled)), settled).slope
    first, second = (
        statistics.median(sample["memory_MB"] for sample in part)
        for part in (samples[2:half], samples[half:])
    )
    result = {
        "machine": platform.machine(),
        **end,
        "memory_MB_first_half": first,
        "memory_MB_second_half": second,
        "grown_by": round(second / first - 1, 4),
        "MB_per_hour": round(per_sample * len(samples) * 60 / minutes, 1),
    }
    for name, value in result.items():
        print(f"{name:<22} {value}")
    if file:
        file.write_text(json.dumps({**result, "samples": samples}, indent=2) + "\n")


def visit(lab: Playground, number: int, over: threading.Event, ends: Counter[str]) -> None:
    """Run comparisons until ``over`` is set, and count how they ended."""
    chance = random.Random(number)
    while not over.is_set():
        prompt = " ".join(chance.choices(WORDS, k=chance.randint(2, 60)))
        runs = chance.sample(RUNS, chance.randint(1, 4))
        stop, end = threading.Event(), chance.choice(["finished", "finished", "cancelled", "left"])
        length, seen = chance.randint(4, 48), 0
        for update in lab.stream(prompt, runs, stop=stop, max_new_tokens=length, seed=number):
            seen += len(update.steps)
            if over.is_set() or (end == "cancelled" and seen > length // 2):
                stop.set()
            elif end == "left" and seen > length // 2:
                break
        ends[end] += 1


def memory() -> int:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 2**20


def cells(lab: Playground) -> int:
    """Return the positions of the key/value pool in use."""
    return int(lab._backends.trie.backend.used)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
