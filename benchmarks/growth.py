"""Times the ticks of one long comparison of six strategies by the length of the texts.

    python benchmarks/growth.py [--model smollm2] [--tokens 2000] [--json FILE]

``--model random`` has SmolLM2-135M's shape and random weights, for machines with nothing but torch
and transformers. Beside a tick stands the time of the model alone for as many cells in a pool of
the same size: a tick should grow no faster than that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.compare import PROMPT, SEED, SIX, device, random, timed
from benchmarks.tick import tick_ms
from engine.settings import Limits
from playground import Playground

# isort: split
import torch

LENGTHS = (50, 100, 200, 500, 1000, 1500, 2000)
NEAR = 50  # ticks that one figure is the median of
CELLS = 13  # that the six strategies request in a tick
KEPT = 6  # slots that the six strategies keep for each token


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default="smollm2")
    arguments.add_argument("--dtype", default="", help="of the random model")
    arguments.add_argument("--tokens", type=int, default=2000 if torch.cuda.is_available() else 200)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    model = random(options.dtype) if options.model == "random" else options.model
    limits = Limits(max_new_tokens=options.tokens, positions=64 * options.tokens)
    lab = Playground(model, limits=limits)
    lab.compare(PROMPT, SIX, max_new_tokens=16, seed=SEED)
    seconds, traces = timed(lab.compare, PROMPT, SIX, max_new_tokens=options.tokens, seed=SEED)
    ticks = [tick.ms for tick in max(traces, key=lambda trace: len(trace.ticks)).ticks]
    rows = [row(lab, ticks, length) for length in LENGTHS if length <= len(ticks)]
    result: dict[str, Any] = {"device": device(lab), "torch": torch.__version__, "ticks": rows}
    result["seconds"] = round(seconds, 2)
    print(f"{len(ticks)} ticks in {seconds:.1f} s on {result['device']}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def row(lab: Playground, ticks: list[float], length: int) -> dict[str, Any]:
    """The tick at one length, and the time of the model alone."""
    tick = statistics.median(ticks[length - NEAR : length])
    model = tick_ms(lab.model.module, KEPT * length, CELLS, ticks=3)
    print(f"{length:5} tokens  {tick:8.2f} ms a tick  the model alone {model:8.2f} ms", flush=True)
    return {"tokens": length, "tick_ms": round(tick, 2), "model_ms": round(model, 2)}


if __name__ == "__main__":
    main()
