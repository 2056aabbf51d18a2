"""Times greedy decoding on a CPU with several kinds of weights, and with llama.cpp.

    python benchmarks/weights.py [--tokens 64] [--gguf FILE] [--json FILE]

The same model in one process: the engine in float32, then `generate` with weights in float32,
bfloat16, and 8 and 4 bits that torch's own kernels multiply with bfloat16 rows. Each row has the
speed and the number of tokens up to the first that differs from float32. With ``--gguf`` and the
package xllamacpp, llama.cpp runs that file on as many threads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.models import loading
from playground import Playground

# isort: split
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

PROMPT = "Once upon a time, in a small village by the sea, there lived an old fisherman who"
GROUP = 32  # 4-bit weights that share a scale


class Int8Linear(nn.Module):
    """A linear layer with 8-bit weights and a scale for each row."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.float()
        scales = weight.abs().amax(1) / 127
        self.scales = scales.bfloat16()
        self.weights = (weight / scales[:, None]).round().to(torch.int8)

    def forward(self, given: Tensor) -> Tensor:
        """The product with any number of rows."""
        rows = given.reshape(-1, given.shape[-1])
        # private: as in engine/accel/packed_linear.py; only this benchmark needs the 4-bit ones.
        product = torch._weight_int8pack_mm(rows, self.weights, self.scales)
        return product.reshape(*given.shape[:-1], -1)


class Int4Linear(nn.Module):
    """A linear layer with 4-bit weights, a scale and an offset for each group."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        groups = layer.weight.float().unflatten(1, (-1, GROUP))
        low, high = groups.amin(-1), groups.amax(-1)
        scales = ((high - low) / 15).clamp(min=1e-8)
        numbers = ((groups - low[..., None]) / scales[..., None]).round().clamp(0, 15)
        numbers = numbers.to(torch.int32).flatten(1)
        self.packed = torch._convert_weight_to_int4pack_for_cpu(numbers, 1)
        offsets = low + 8 * scales
        self.scales = torch.stack([scales, offsets], -1).bfloat16().transpose(0, 1).contiguous()

    def forward(self, given: Tensor) -> Tensor:
        """The product with any number of rows."""
        rows = given.reshape(-1, given.shape[-1])
        product = torch._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scales)
        return product.reshape(*given.shape[:-1], -1)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--gguf", type=Path)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    lab = Playground(loading.load(device="cpu"))
    ids = lab.model.tokenizer(PROMPT, return_tensors="pt").input_ids
    folder = lab.model.module.name_or_path

    def by_engine() -> list[int]:
        [trace] = lab.compare(PROMPT, ["greedy"], max_new_tokens=options.tokens)
        return list(trace.sequences[0].token_ids)

    ways: dict[str, Callable[[], list[int]]] = {"engine, float32": by_engine}
    for name, kind, layer in (
        ("float32", torch.float32, None),
        ("bfloat16", torch.bfloat16, None),
        ("8 bits", torch.bfloat16, Int8Linear),
        ("4 bits", torch.bfloat16, Int4Linear),
    ):
        model = loaded(folder, kind, layer)
        ways[f"generate, {name}"] = lambda model=model: written(model, ids, options.tokens)
    if options.gguf:
        ways["llama.cpp"] = llama_cpp(options.gguf, options.tokens)
    rows, expected = [], by_engine()
    for name, way in ways.items():
        found = way()
        seconds = min(timed(way) for _ in range(2))
        row = {"way": name, "tokens_per_second": round(options.tokens / seconds, 1)}
        if found:
            row["equal_tokens"] = len(common(found, expected))
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if options.json:
        machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
        options.json.write_text(json.dumps({"machine": machine, "ways": rows}, indent=2) + "\n")


def loaded(folder: str, kind: torch.dtype, layer: type[nn.Module] | None) -> Any:
    """The model with every linear layer replaced by this kind of layer."""
    auto: Any = AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=kind)
    for block in list(model.modules()) if layer else []:
        for name, child in block.named_children():
            if isinstance(child, nn.Linear):
                setattr(block, name, layer(child))
    return model


def written(model: Any, ids: Tensor, tokens: int) -> list[int]:
    output = model.generate(ids, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens)
    return list(output[0, ids.shape[1] :].tolist())


def llama_cpp(gguf: Path, tokens: int) -> Callable[[], list[int]]:
    """Generates as many tokens with llama.cpp; they are not compared."""
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = str(gguf)
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = torch.get_num_threads()
    params.warmup = True
    server = library.Server(params)
    request = {"prompt": PROMPT, "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}

    def write() -> list[int]:
        server.handle_completions(request)
        return []

    return write


def common(found: list[int], expected: list[int]) -> list[int]:
    """The tokens up to the first that differs."""
    equal = [ours == theirs for ours, theirs in zip(found, expected, strict=False)]
    return found[: equal.index(False) if False in equal else len(equal)]


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
