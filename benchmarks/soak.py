"""Random comparisons for a long time, some broken off: memory must not grow with their number.

    python benchmarks/soak.py [--minutes 30] [--visitors 3] [--json FILE]

Visitors run comparisons of random strategies, prompts and lengths on one lab, one after the other;
a third of them is cancelled on the way, some are left without a word. Twenty times along the way,
between comparisons, the process's memory and the cells that are still held are noted. The second
half of the notes is compared with the first, and a line is laid through all but the first two.
Needs torch and transformers only.
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

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.settings import Limits
from playground import Playground

NOTES = 20
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
    notes: list[dict[str, Any]] = []
    for _ in range(NOTES):
        time.sleep(options.minutes * 60 / NOTES)
        done = sum(count.total() for count in ends)
        notes.append({"comparisons": done, "memory_MB": memory(), "cells": cells(lab)})
        # Not gc.get_objects(): it sees tuples half done, and whoever is building one then fails.
        notes[-1]["blocks"] = sys.getallocatedblocks()
        print("  ".join(f"{name} {value}" for name, value in notes[-1].items()), flush=True)
    over.set()
    for thread in threads:
        thread.join()
    gc.collect()
    told = dict(sum(ends, Counter()))
    end = {"comparisons": sum(told.values()), **told, "memory_MB_at_first": began}
    report(notes, {**end, "cells_at_the_end": cells(lab)}, options.minutes, options.json)


def report(
    notes: list[dict[str, Any]], end: dict[str, Any], minutes: float, file: Path | None
) -> None:
    half, settled = len(notes) // 2, [note["memory_MB"] for note in notes[2:]]
    per_note = statistics.linear_regression(range(len(settled)), settled).slope
    first, second = (
        statistics.median(note["memory_MB"] for note in part)
        for part in (notes[2:half], notes[half:])
    )
    result = {
        "machine": platform.machine(),
        **end,
        "memory_MB_first_half": first,
        "memory_MB_second_half": second,
        "grown_by": round(second / first - 1, 4),
        "MB_per_hour": round(per_note * len(notes) * 60 / minutes, 1),
    }
    for name, value in result.items():
        print(f"{name:<22} {value}")
    if file:
        file.write_text(json.dumps({**result, "notes": notes}, indent=2) + "\n")


def visit(lab: Playground, number: int, over: threading.Event, ends: Counter[str]) -> None:
    """Run comparisons until it is over, and count how they ended."""
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
    """MB this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 2**20


def cells(lab: Playground) -> int:
    """Positions of the pool that somebody holds."""
    return int(lab._backends.trie.backend.used)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
