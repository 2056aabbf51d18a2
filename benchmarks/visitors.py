"""Measures throughput and time to the first token with many concurrent visitors.

    python benchmarks/visitors.py [--visitors 1 2 4 8 16] [--tokens 32] [--json FILE]

Every visitor is a thread with its own comparison and its own prompt, as on the page; all start at
the same moment on a warm model. Total tokens per second and the longest time to a first token are
also given relative to a single visitor. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playground import Playground

# isort: split
import torch

PROMPTS = ["The sea was", "In the morning the", "A teacher once told", "Winter came early and"]
RUNS = ["greedy", ("sample", {"top_p": 0.9})]


class Visit(NamedTuple):
    """The measurements of one visitor."""

    first: float  # seconds to the first token
    tokens: int


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default="smollm2")
    arguments.add_argument("--visitors", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    arguments.add_argument("--tokens", type=int, default=32)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    lab = Playground(options.model)
    crowd(lab, 1, options.tokens, "warm")
    rows = []
    for count in options.visitors:
        rows.append(crowd(lab, count, options.tokens, f"{count}:"))
        alone = rows[0]
        row = rows[-1]
        row["times_the_tokens"] = round(row["tokens_per_second"] / alone["tokens_per_second"], 2)
        row["times_the_wait"] = round(row["worst_first_token_s"] / alone["worst_first_token_s"], 2)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    if options.json:
        result = {"machine": machine, "torch": torch.__version__, "visitors": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def crowd(lab: Playground, count: int, tokens: int, salt: str) -> dict[str, Any]:
    """Run ``count`` visitors at once."""
    visits: list[Visit] = []
    gate = threading.Barrier(count + 1)

    def visit(number: int) -> None:
        prompt = f"{salt}{number} {PROMPTS[number % len(PROMPTS)]}"  # not in the cache yet
        gate.wait()
        started, first, traces = time.perf_counter(), 0.0, []
        for update in lab.stream(prompt, RUNS, max_new_tokens=tokens, seed=number):
            if update.steps and not first:
                first = time.perf_counter() - started
            traces += [update.trace] if update.trace else []
        visits.append(Visit(first, sum(len(t.sequences[0].token_ids) for t in traces)))

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    gate.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    return {
        "visitors": count,
        "tokens_per_second": round(sum(visit.tokens for visit in visits) / seconds, 1),
        "worst_first_token_s": round(max(visit.first for visit in visits), 3),
    }


if __name__ == "__main__":
    main()
