"""Writes lookahead_4_51.json: contrastive search and DoLa as transformers 4.51.3 had them.

Two steps, because 4.51.3 can read tiny models but not build the same ones from a seed:

    python -m tests.strategies.make_lookahead_reference save FOLDER     with our transformers
    python -m tests.strategies.make_lookahead_reference write FOLDER    with 4.51.3 (PYTHONPATH)
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

PROMPT = "Hello there"
TOKENS = 24
REFERENCE = Path(__file__).parent / "lookahead_4_51.json"

CONTRASTIVE: list[dict[str, Any]] = [
    {"penalty_alpha": 0.6, "top_k": 4},
    {"penalty_alpha": 0.3, "top_k": 8, "repetition_penalty": 1.3},
    {"penalty_alpha": 0.9, "top_k": 2},
    {"penalty_alpha": 0.5, "top_k": 6, "no_repeat_ngram_size": 2, "min_new_tokens": 20},
]
DOLA: list[dict[str, Any]] = [
    {"dola_layers": "low"},
    {"dola_layers": "high"},
    {"dola_layers": [1, 3, 4, 5, 6, 7, 20]},
    {"dola_layers": [0], "repetition_penalty": 1.2},
    {"dola_layers": "low", "repetition_penalty": 1.2, "min_new_tokens": 20},
    {"dola_layers": "high", "do_sample": True, "top_k": 0},
    {"dola_layers": "low", "do_sample": True, "temperature": 1.5, "top_p": 0.9},
]
CASES = [
    *product(["llama", "gpt2", "qwen3", "t5", "bart"], ["contrastive_search"], CONTRASTIVE),
    *product(["untied", "tied", "gpt2"], ["dola"], DOLA),
]


def model(kind: str) -> Any:
    """A tiny model of a kind, the same one every time."""
    from tests.draft_models import deep
    from tests.tiny import tiny

    return deep(8, tied=kind == "tied") if kind in ("tied", "untied") else tiny(kind)


def save(folder: Path) -> None:
    """Save the models of all cases, and the prompt in their tokens."""
    for kind in {kind for kind, _, _ in CASES}:
        tiny = model(kind)
        tiny.module.save_pretrained(folder / kind)
        ids = tiny.tokenizer(PROMPT).input_ids
        (folder / f"{kind}.json").write_text(json.dumps(ids))


def write(folder: Path) -> None:
    """Let the old transformers generate."""
    import torch
    import transformers

    assert transformers.__version__ == "4.51.3", transformers.__version__
    cases = []
    for kind, strategy, settings in CASES:
        encodes = kind in ("t5", "bart")
        auto = transformers.AutoModelForSeq2SeqLM if encodes else transformers.AutoModelForCausalLM
        module = auto.from_pretrained(folder / kind).eval()
        ids = torch.tensor([json.loads((folder / f"{kind}.json").read_text())])
        transformers.set_seed(3)
        output = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, **settings
        )
        new = output[0, 1 if encodes else ids.shape[1] :].tolist()
        case = {"model": kind, "strategy": strategy, "settings": settings, "seed": 3}
        cases.append({**case, "token_ids": new})
    lines = ",\n".join(json.dumps(case) for case in cases)
    REFERENCE.write_text(f'{{"transformers": "4.51.3", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    {"save": save, "write": write}[sys.argv[1]](Path(sys.argv[2]))
