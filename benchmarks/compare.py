"""Times six strategies in one comparison against the same six through `generate` in turn.

    python benchmarks/compare.py [--model smollm2] [--tokens 64] [--repeat 2] [--json FILE]

Both run in one process on the same model, the best of several runs counts, and the tokens are
compared. transformers 5 has no contrastive search: through `generate` ours is used, alone.
``--model random`` has SmolLM2-135M's shape and random weights. ``--static`` also times `generate`
with its static cache and compiled step; strategies without one (beam search, contrastive search)
count with their ordinary time. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.random_model import random_model
from engine.models.model import Model
from engine.trace import Trace
from engine.trace.deferred_writer import DeferredWriter
from playground import Playground
from strategies import contrastive_search

# isort: split
import torch
from transformers import set_seed

PROMPT = "Once upon a time, in a small village by the sea, there lived an old fisherman who"
SIX: list[tuple[str, dict[str, Any]]] = [
    ("greedy", {}),
    ("sample", {"temperature": 0.8, "top_k": 50}),
    ("sample", {"top_p": 0.9, "top_k": 0}),
    ("sample", {"min_p": 0.05, "temperature": 1.2, "top_k": 0}),
    ("beam_search", {"num_beams": 5}),
    ("contrastive_search", {"top_k": 4, "penalty_alpha": 0.6}),
]
SEED = 0
COMPILED = ("greedy", "sample")  # strategies whose step transformers compiles


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default="smollm2")
    arguments.add_argument("--dtype", default="", help="of the random model")
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--repeat", type=int, default=2)
    arguments.add_argument("--static", action="store_true")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    lab = Playground(random(options.dtype) if options.model == "random" else options.model)
    theirs = lab.model

    def together() -> list[Trace]:
        return lab.compare(PROMPT, SIX, max_new_tokens=options.tokens, seed=SEED)

    compiled = static(theirs, options) if options.static else {}
    traces, expected = together(), []
    apart = {}
    for choice in SIX:
        seconds, ids = quickest(partial(generate, theirs, *choice, options.tokens), options)
        apart[str(choice)] = seconds
        expected.append(ids)
        print(f"{seconds:8.2f} s  generate, {choice[0]} {choice[1]}", flush=True)
    equal = [list(t.sequences[0].token_ids) == ids for t, ids in zip(traces, expected, strict=True)]
    seconds_by_way = {"apart": sum(apart.values()), "together": quickest(together, options)[0]}
    if options.static:
        seconds_by_way["static"] = sum({**apart, **compiled}.values())
    report(
        {
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {device(lab)}",
            "torch": torch.__version__,
            "model": f"{lab.model.name}, {lab.model.module.dtype}",
            "new_tokens": options.tokens,
            "equal_tokens": f"{sum(equal)} of {len(equal)}",
            **{f"seconds_{way}": round(value, 2) for way, value in seconds_by_way.items()},
            **{
                f"times_faster_than_{way}": round(value / seconds_by_way["together"], 2)
                for way, value in seconds_by_way.items()
                if way != "together"
            },
            "tick_ms_median": round(tick_ms(traces), 1),
            "tracing_share": round(tracing(together), 4),
            "largest_trace_kB": round(max(len(trace.to_json()) for trace in traces) / 1000),
        },
        options.json,
    )


def static(model: Model, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of each strategy that has a compiled step with a static cache."""
    times = {}
    for choice in SIX:
        if choice[0] in COMPILED:
            work = partial(generate, model, *choice, options.tokens, static=True)
            compiling, _ = timed(work)
            times[str(choice)], _ = quickest(work, options)
            print(
                f"{times[str(choice)]:8.2f} s  generate, static cache, {choice[0]} {choice[1]}"
                f" (the first time {compiling:.0f} s)",
                flush=True,
            )
    return times


def random(dtype: str) -> Model:
    gpu = torch.cuda.is_available()
    kind = dtype or ("bfloat16" if gpu else "float32")
    return random_model("cuda" if gpu else "cpu", getattr(torch, kind))


def generate(
    model: Model, name: str, own: dict[str, Any], tokens: int, *, static: bool = False
) -> list[int]:
    """The new tokens of a strategy through `generate`."""
    ids = model.tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
    ids = ids.to(model.device)
    set_seed(SEED)
    options: dict[str, Any] = {"do_sample": name == "sample"}
    if name == "contrastive_search":
        options["custom_generate"] = contrastive_search.generate
    elif static:
        options["cache_implementation"] = "static"
    output = model.generate(**ids, **own, **options, max_new_tokens=tokens)
    return list(output[0, ids.input_ids.shape[1] :].tolist())


def quickest(work: Callable[[], Any], options: argparse.Namespace) -> tuple[float, Any]:
    """The shortest of several times, and the result."""
    times = [timed(work) for _ in range(options.repeat)]
    return min(seconds for seconds, _ in times), times[0][1]


def timed(work: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[float, Any]:
    """The seconds a call took, including its work on a GPU, and its result."""
    synchronize()
    start = time.perf_counter()
    result = work(*args, **kwargs)
    synchronize()
    return time.perf_counter() - start, result


def tracing(work: Callable[[], Any]) -> float:
    """The share of a comparison spent on recording the trace, outside the forward pass."""
    spent = 0.0

    def watched(inner: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            start = time.perf_counter()
            result = inner(*args, **kwargs)
            spent += time.perf_counter() - start
            return result

        return wrapper

    with mock.patch.object(DeferredWriter, "flush", watched(DeferredWriter.flush)):
        total, _ = timed(work)
    return spent / total


def tick_ms(traces: list[Trace]) -> float:
    return statistics.median(tick.ms for trace in traces for tick in trace.ticks[1:])


def device(lab: Playground) -> str:
    return torch.cuda.get_device_name() if lab.model.device.type == "cuda" else "CPU"


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(result: dict[str, Any], file: Path | None) -> None:
    width = max(map(len, result))
    for name, value in result.items():
        print(f"{name:<{width}}  {value}")
    if file:
        file.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
