"""Measures the speed-up of every drafter over greedy decoding, and compares with transformers.

    python benchmarks/speculative.py [--model smollm2] [--device cuda] [--dtype bfloat16]
        [--tokens 64] [--repeat 2] [--kinds chat,story] [--prompts 4] [--drafters medusa]
        [--set num_assistant_tokens=4] [--json FILE]

All drafters run on the same prompts in turn, in one process; the best time of each counts, without
the time of reading the prompt. Nothing was trained on these prompts. At the end transformers'
assisted generation runs on some of them with the same target and draft model. ``--model`` may be a
folder with SmolLM2-135M-Instruct. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# The scripts run from the repository, which is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import strategies
from benchmarks.drafting_prompts import COPIES, PROMPTS, Prompt
from engine.models import (
    loading,
    trained,
)
from engine.models.embedded import is_intact
from engine.models.model import Model
from engine.models.stories15m import STORIES15M
from engine.prompt import tokens_of
from engine.trace import Trace
from playground import Playground
from playground.cli.arguments import assignment

# isort: split
import torch
from transformers import AutoModelForCausalLM

PLAIN = "greedy"


class Measured(NamedTuple):
    """The fastest run of one drafter on one prompt."""

    seconds: float
    trace: Trace
    equal: bool  # same tokens as plain decoding

    @property
    def tokens(self) -> int:
        """The number of new tokens."""
        return len(self.trace.sequences[0].token_ids)


def main() -> None:
    options = parsed()
    model = loading.load(options.model, device=options.device, dtype=options.dtype)
    lab = Playground(model)
    ways = available(lab, dict(assignment(text) for text in options.set))
    wanted = options.drafters.split(",") if options.drafters else list(ways)
    ways = {name: way for name, way in ways.items() if name in (PLAIN, *wanted)}
    kinds = {**PROMPTS, "copy-heavy": COPIES}
    chosen = options.kinds.split(",") if options.kinds else list(kinds)
    if model.device.type == "cuda":  # captures CUDA graphs before the measurement
        measured(lab, ways, kinds[chosen[0]][0], options)
    rows: list[dict[str, Any]] = []
    print(f"{'kind':12}{'drafter':24}tokens/s  speed-up  accepted  tokens/pass  equal texts")
    for kind in chosen:
        prompts = kinds[kind][: options.prompts]
        found = [measured(lab, ways, prompt, options) for prompt in prompts]
        for name in ways:
            rows.append(row(kind, name, found))
            show(rows[-1])
    for name in ways:
        rows.append(together([each for each in rows if each["way"] == name]))
        show(rows[-1])
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {device(model)}",
        "torch": torch.__version__,
        "model": f"{model.name}, {model.module.dtype}",
        "new_tokens": options.tokens,
        "rows": rows,
    }
    if "speculative" in ways and not options.no_transformers:
        prompts = [kinds[kind][0] for kind in chosen]
        result["transformers"] = against_transformers(lab, ways["speculative"], prompts, options)
    print("  ".join(f"{name} {result[name]}" for name in ("machine", "torch", "model")))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", default=loading.DEFAULT)
    arguments.add_argument("--device")
    arguments.add_argument("--dtype")
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--repeat", type=int, default=2)
    arguments.add_argument("--kinds", default="")
    arguments.add_argument("--prompts", type=int, default=4, help="most prompts of each kind")
    arguments.add_argument("--drafters", default="", help="drafters to run, comma-separated")
    arguments.add_argument("--set", action="append", default=[], help="drafter setting, NAME=VALUE")
    arguments.add_argument("--no-transformers", action="store_true")
    arguments.add_argument("--json", type=Path)
    return arguments.parse_args()


def available(lab: Playground, settings: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return plain decoding and every available drafter, with those ``settings`` that it has."""
    drafters = ["prompt_lookup", "early_exit"]
    if lab.defaults("speculative")["assistant_model"]:
        drafters.append("speculative")
    if "medusa" in strategies.registered() and trained.heads(lab.model) is not None:
        drafters.append("medusa")
    if is_intact(STORIES15M.folder):
        drafters.append("universal_speculative")
    ways: dict[str, tuple[str, dict[str, Any]]] = {PLAIN: (PLAIN, {})}
    for name in drafters:
        known = lab.defaults(name)
        chosen = {key: value for key, value in settings.items() if key in known}
        ways[name] = (name, chosen)
    return ways


def measured(
    lab: Playground,
    ways: dict[str, tuple[str, dict[str, Any]]],
    prompt: Prompt,
    options: argparse.Namespace,
) -> dict[str, Measured]:
    """Return the best run of each drafter on a prompt; the first run of each does not count."""
    best: dict[str, Measured] = {}
    for turn in range(options.repeat + 1):
        for name, way in ways.items():
            seconds, [trace] = timed(
                lambda way=way: lab.compare(prompt, [way], max_new_tokens=options.tokens)
            )
            assert trace.error is None, trace.error
            plain = best.get(PLAIN, Measured(0.0, trace, True)).trace
            equal = trace.sequences[0].token_ids == plain.sequences[0].token_ids
            if turn <= 1 or seconds < best[name].seconds:
                best[name] = Measured(seconds, trace, equal)
    return best


def row(kind: str, name: str, found: Sequence[dict[str, Measured]]) -> dict[str, Any]:
    """Return a row of the table: one drafter on all prompts of a kind."""
    runs, plain = [each[name] for each in found], [each[PLAIN] for each in found]
    fates = Counter(step.notes.get("verdict") for run in runs for step in run.trace.steps)
    passes = sum(run.trace.forward_passes for run in runs)
    line: dict[str, Any] = {
        "kind": kind,
        "way": name,
        "prompts": len(runs),
        "equal": sum(run.equal for run in runs),
        "tokens": sum(run.tokens for run in runs),
        "seconds": sum(run.seconds for run in runs),
        "plain_seconds": sum(run.seconds for run in plain),
        "plain_tokens": sum(run.tokens for run in plain),
        "passes": passes,
        "drafted": sum(fates[fate] for fate in ("accepted", "rejected", "ignored")),
        "accepted": fates["accepted"],
    }
    ticks = [tick for run in runs for tick in run.trace.ticks[1:]]
    line["pass_ms"] = median([tick.ms for tick in ticks if tick.forward_passes])
    line["draft_ms"] = median([tick.ms for tick in ticks if tick.draft_passes == 1])
    return derived(line)


def together(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row over all kinds but the copy-heavy one, which only suits prompt lookup."""
    counted = [line for line in lines if line["kind"] in PROMPTS] or lines
    first = counted[0]
    sums = {key: sum(line[key] for line in counted) for key in _SUMS}
    return derived({"kind": "all", "way": first["way"], **sums})


_SUMS = (
    *("prompts", "equal", "tokens", "seconds", "plain_seconds", "plain_tokens"),
    *("passes", "drafted", "accepted"),
)


def derived(line: dict[str, Any]) -> dict[str, Any]:
    rate, plain = line["tokens"] / line["seconds"], line["plain_tokens"] / line["plain_seconds"]
    return {
        **line,
        "tokens_per_second": round(rate, 1),
        "times_plain": round(rate / plain, 2),
        "acceptance": round(line["accepted"] / line["drafted"], 3) if line["drafted"] else None,
        "tokens_per_pass": round(line["tokens"] / max(1, line["passes"]), 2),
    }


def show(line: dict[str, Any]) -> None:
    accepted = "-" if line["acceptance"] is None else f"{line['acceptance']:.0%}"
    print(
        f"{line['kind']:12}{line['way']:24}{line['tokens_per_second']:8}"
        f"{line['times_plain']:10}{accepted:>10}{line['tokens_per_pass']:13}"
        f"{line['equal']:>9} of {line['prompts']}",
        flush=True,
    )


def against_transformers(
    lab: Playground,
    way: tuple[str, dict[str, Any]],
    prompts: Sequence[Prompt],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Compare assisted generation with the same target and draft: engine and transformers."""
    loaded = as_loaded(lab.model)
    seconds, tokens = Counter[str](), Counter[str]()
    for prompt in prompts:
        ids = torch.tensor([tokens_of(lab.model, prompt)[1]], device=lab.model.device)
        works: dict[str, Callable[[int], int]] = {
            "engine": lambda count, p=prompt: written(lab, p, way, count),
            "generate, as loaded": lambda count, i=ids: assisted(loaded, i, way[1], count),
            "generate, engine's layers": lambda count, i=ids: assisted(lab.model, i, way[1], count),
            "generate, no draft": lambda count, i=ids: assisted(loaded, i, None, count),
        }
        best: dict[tuple[str, int], tuple[float, int]] = {}
        for _ in range(options.repeat + 1):
            for name, work in works.items():
                for count in (1, options.tokens):  # one token measures the prompt
                    took = timed(lambda work=work, count=count: work(count))
                    best[name, count] = min(best.get((name, count), took), took)
        for name in works:
            seconds[name] += best[name, options.tokens][0] - best[name, 1][0]
            tokens[name] += best[name, options.tokens][1] - best[name, 1][1]
    rates = {name: round(tokens[name] / seconds[name], 1) for name in seconds}
    for name, rate in rates.items():
        ratio = round(rates["engine"] / rate, 2)
        print(f"{'assisted':12}{name:28}{rate:8} tokens/s   engine: {ratio}x")
    return rates


def written(lab: Playground, prompt: Prompt, way: tuple[str, dict[str, Any]], count: int) -> int:
    [trace] = lab.compare(prompt, [way], max_new_tokens=count)
    return len(trace.sequences[0].token_ids)


def assisted(model: Model, ids: torch.Tensor, own: dict[str, Any] | None, count: int) -> int:
    """Return how many tokens `generate` writes, with or without the trained draft model."""
    draft = {}
    if own is not None:
        module: Any = trained.draft(model).module
        for name, value in own.items():  # transformers reads the settings from the draft model
            setattr(module.generation_config, name, value)
        draft = {"assistant_model": module}
    mask = torch.ones_like(ids)
    output = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=count, **draft
    )
    return int(output.shape[1] - ids.shape[1])


def as_loaded(model: Model) -> Model:
    """Return the same model as transformers loads it."""
    auto: Any = AutoModelForCausalLM
    module = auto.from_pretrained(model.module.name_or_path, dtype=model.module.dtype)
    return Model(model.name, module.to(model.device), model.tokenizer)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds a call took and its result, with the GPU's queue drained."""
    synchronize()
    start = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - start, result


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def device(model: Model) -> str:
    return torch.cuda.get_device_name() if model.device.type == "cuda" else "CPU"


if __name__ == "__main__":
    main()
