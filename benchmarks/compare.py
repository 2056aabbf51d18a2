"""Six strategies together against the same six through `generate`, one after the other.

    python benchmarks/compare.py [--model smollm2] [--tokens 64] [--repeat 2] [--json FILE]

Both ways run in this one process, in turn, and the best of each counts. Tokens are compared before
anything is timed. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine.backend  # before torch: it decides how torch's threads wait
import engine.run
from engine.record import Recorder
from engine.trace import Trace
from playground import Playground

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
    ("beam_sample", {"num_beams": 4, "top_k": 50}),
]
SEED = 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default="smollm2")
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--repeat", type=int, default=2)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    lab = Playground(options.model)
    shared = {"max_new_tokens": options.tokens, "seed": SEED}

    def together() -> list[Trace]:
        return lab.compare(PROMPT, SIX, **shared)

    def apart() -> list[list[int]]:
        return [generate(lab, name, own, options.tokens) for name, own in SIX]

    traces, expected = together(), apart()
    equal = [list(t.sequences[0].token_ids) == ids for t, ids in zip(traces, expected, strict=True)]
    seconds_apart, seconds_together = best(apart, options.repeat), best(together, options.repeat)
    report(
        {
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {device(lab)}",
            "torch": torch.__version__,
            "new_tokens": options.tokens,
            "equal_tokens": f"{sum(equal)} of {len(equal)}",
            "seconds_apart": round(seconds_apart, 2),
            "seconds_together": round(seconds_together, 2),
            "times_faster": round(seconds_apart / seconds_together, 2),
            "tick_ms_median": round(tick_ms(traces), 1),
            "instrumentation_share": round(instrumentation(together), 4),
            "largest_trace_kB": round(max(len(trace.to_json()) for trace in traces) / 1000),
        },
        options.json,
    )


def generate(lab: Playground, name: str, own: dict[str, Any], tokens: int) -> list[int]:
    """The new tokens of the same strategy through transformers."""
    ids = lab.model.tokenizer(PROMPT, return_tensors="pt").to(lab.model.device)
    set_seed(SEED)
    sampled = name in ("sample", "beam_sample")
    output = lab.model.generate(**ids, **own, do_sample=sampled, max_new_tokens=tokens)
    return output[0, ids.input_ids.shape[1] :].tolist()


def best(work: Callable[[], Any], repeat: int) -> float:
    """The shortest of several times."""
    return min(timed(work)[0] for _ in range(repeat))


def timed(work: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[float, Any]:
    """Seconds a call took, and what it gave; a GPU's queue is waited for."""
    synchronize()
    start = time.perf_counter()
    result = work(*args, **kwargs)
    synchronize()
    return time.perf_counter() - start, result


def instrumentation(work: Callable[[], Any]) -> float:
    """The share of a comparison spent on the trace: what no strategy would need to decode."""
    spent = 0.0

    def watched(inner: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            seconds, result = timed(inner, *args, **kwargs)
            spent += seconds
            return result

        return wrapper

    with (
        mock.patch.object(engine.backend, "entropy", watched(engine.backend.entropy)),
        mock.patch.object(engine.backend, "most", watched(engine.backend.most)),
        mock.patch.object(engine.run, "observe", watched(engine.run.observe)),
        mock.patch.object(Recorder, "step", watched(Recorder.step)),
    ):
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
