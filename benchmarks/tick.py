"""How long one tick takes: the model's part, what of it is instrumentation, and everything else.

    python benchmarks/tick.py [--device cuda] [--dtype bfloat16] [--plain] [--json FILE]

Random weights of SmolLM2-135M's shape; needs torch and transformers only. The model's part is
timed by rows and by how much of the pool is in use, for new cells that branch off one text,
with masks, forward pass, log-probabilities, entropy and the most probable tokens, of which the
last three are the instrumentation. With ``--plain`` the passes are timed without fused layers too,
as models of another structure run. The rest (Python, processors, draws, the trace) is what a tick
of six strategies takes beyond the model's part for as many cells.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.compare import PROMPT, SEED, SIX
from benchmarks.random_model import VOCABULARY, random_model
from engine.accel.accelerated_pool import Accelerations, accelerate, accelerated_pool
from engine.models.model import Model
from engine.models.view import view_of
from engine.trie.backend import NodeOutput
from playground import Playground

# isort: split
import torch
from torch import Tensor

ROWS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (100, 600, 1500)  # positions in use; on a GPU ticks then see 512, 1,024 and 2,048
CELLS = 13  # cells that the six evaluate in a tick
RUNS = 5  # of the six, after two in which shapes are recorded
WARM = 4  # ticks before the timing starts: on a GPU a shape is recorded at the second


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--dtype", default="")
    arguments.add_argument("--ticks", type=int, default=0)
    arguments.add_argument("--plain", action="store_true")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    gpu = options.device.startswith("cuda")
    dtype = options.dtype or ("bfloat16" if gpu else "float32")
    ticks = options.ticks or (30 if gpu else 3)
    model = random_model(options.device, getattr(torch, dtype))
    rows = table(model.module, gpu, ticks, fused=True)
    if options.plain:
        rows += table(model.module, gpu, ticks, fused=False)
    whole = six_ms(model, 64 if gpu else 8)
    own = tick_ms(model.module, LENGTHS[0], CELLS, ticks)
    print(
        f"six strategies {whole:.2f} ms a tick, {own:.2f} ms of it the model's, {whole - own:.2f}"
        " ms all the rest"
    )
    where = torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"
    result = {"device": where, "torch": torch.__version__, "dtype": dtype, "ticks": rows}
    result["six"] = {"tick_ms": round(whole, 3), "model_ms": round(own, 3)}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def table(model: Any, gpu: bool, ticks: int, *, fused: bool) -> list[dict[str, Any]]:
    """All shapes, with fused layers or with the model's own."""
    view = view_of(model)
    found = accelerate(view, model, packed=False, check=True) if fused else Accelerations()
    rows = []
    for length in LENGTHS if gpu else LENGTHS[:1]:
        for count in ROWS:
            shape = {"layers": "fused" if fused else "plain"}
            rows.append({**shape, **measured(view, found, length, count, ticks)})
            print(line(rows[-1]), flush=True)
    return rows


def six_ms(model: Model, tokens: int) -> float:
    """The median tick of six strategies together, once every shape is known; of several runs that
    in which the machine was left alone most."""
    lab = Playground(model)
    medians = []
    for _ in range(2 + RUNS):
        traces = lab.compare(PROMPT, SIX, max_new_tokens=tokens, seed=SEED)
        medians.append(statistics.median(tick.ms for tick in traces[0].ticks[WARM:]))
    return min(medians[2:])


def measured(
    view: Any, found: Accelerations, length: int, count: int, ticks: int
) -> dict[str, Any]:
    """One shape: milliseconds a tick, as it is and without the instrumentation."""
    whole, without = (Ticking(view, found, length, count, ticks) for _ in range(2))
    without.pool._read = bare
    for _ in range(WARM + ticks):  # in turn: other load on the machine affects both
        whole.tick()
        without.tick()
    return {
        "rows": count,
        "positions": length,
        "tick_ms": round(whole.ms, 3),
        "instrumentation_share": round(max(0.0, 1 - without.ms / whole.ms), 3),
        "first_ms": [round(value, 1) for value in whole.times[:WARM]],
    }


def bare(logits: Tensor, hidden: Tensor | None = None, width: int | None = None) -> NodeOutput:
    """Outputs that have only logits."""
    nothing = logits.new_empty(len(logits), 0)
    logits = logits.float()
    states = nothing[..., None] if hidden is None else hidden
    return NodeOutput(logits, nothing, nothing, nothing, nothing, nothing, states)


class Ticking:
    """A new pool with ``length`` positions in use, and ticks of ``count`` rows each."""

    def __init__(
        self, view: Any, found: Accelerations, length: int, count: int, ticks: int
    ) -> None:
        assert 1000 + (WARM + ticks) * count < VOCABULARY
        self.pool = accelerated_pool(view, length + 8192, None, found)
        self._count = count
        self._tip = self.pool.top(None).descend([3 + at % 500 for at in range(length)])
        self._held = self.pool.evaluate([self._tip])
        self.times: list[float] = []

    def tick(self) -> None:
        """One more, of new cells."""
        first = 1000 + len(self.times) * self._count
        cells = [self._tip.child(first + row) for row in range(self._count)]
        self.times.append(timed(lambda: self.pool.evaluate(cells)))

    @property
    def ms(self) -> float:
        """The median tick."""
        return statistics.median(self.times[WARM:])


def tick_ms(model: Any, length: int, count: int, ticks: int) -> float:
    """The median tick of a fresh pool."""
    view = view_of(model)
    found = accelerate(view, model, packed=True, check=True)
    ticking = Ticking(view, found, length, count, ticks)
    for _ in range(WARM + ticks):
        ticking.tick()
    return ticking.ms


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds until the device has done the work."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return (time.perf_counter() - start) * 1000


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['layers']:5}  {row['rows']:3} rows  {row['positions']:5} positions  "
        f"{row['tick_ms']:8.3f} ms  "
        f"instrumentation {row['instrumentation_share']:6.1%}  first ticks {row['first_ms']}"
    )


if __name__ == "__main__":
    main()
