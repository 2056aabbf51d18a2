"""Writes `reference_4_51.json`: what transformers 4.51.3 decodes with the tiny models of the tests.

Later versions load some of these searches from the Hub; that one still contains them. The project
itself needs a later version, so there are two runs:

    python -m tests.strategies.make_reference save FOLDER     with the project's transformers
    python tests/strategies/make_reference.py write FOLDER    with transformers 4.51.3

A case is a kind of tiny model, a strategy and its settings under their `GenerationConfig` names.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).with_name("reference_4_51.json")
PROMPT = "Hello there"
NEW_TOKENS = 12
ENDING: dict[str, Any] = {"sequence_bias": [[[2], 5.0]]}  # random weights seldom end a text

DIVERSE: list[dict[str, Any]] = [
    {"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 1.0, "num_return_sequences": 6},
    {"num_beams": 4, "num_beam_groups": 4, "diversity_penalty": 0.3, "num_return_sequences": 3},
    {
        **ENDING,
        **{"num_beams": 6, "num_beam_groups": 2, "diversity_penalty": 2.5},
        **{"num_return_sequences": 6, "early_stopping": True, "length_penalty": 2.0},
    },
    {
        **ENDING,
        **{"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.5},
        **{"num_return_sequences": 6, "early_stopping": "never", "length_penalty": -0.5},
    },
    {
        **ENDING,
        **{"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 10.0},
        **{"num_return_sequences": 4, "early_stopping": "never", "length_penalty": 1.5},
    },
    {
        **{"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
        **{"num_return_sequences": 4, "repetition_penalty": 1.3, "renormalize_logits": True},
        "eos_token_id": [2, *range(60, 90)],
    },
    {
        **ENDING,
        **{"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 1.0},
        **{"num_return_sequences": 6, "forced_bos_token_id": 77, "forced_eos_token_id": 2},
    },
    # Padding is an end token: other groups avoid the padding of a finished group.
    {
        **{"eos_token_id": [0], "exponential_decay_length_penalty": [3, 1.15]},
        **{"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 1.0},
        **{"num_return_sequences": 6, "early_stopping": True},
    },
]
CONSTRAINED: list[dict[str, Any]] = [
    {"num_beams": 5, "force_words_ids": [[100]], "num_return_sequences": 3},
    {"num_beams": 5, "force_words_ids": [[[100], [101]]], "num_return_sequences": 3},
    {"num_beams": 4, "force_words_ids": [[100, 101], [102]], "num_return_sequences": 4},
    {
        **ENDING,
        **{"num_beams": 6, "force_words_ids": [[100], [120, 121, 122]], "early_stopping": True},
        **{"num_return_sequences": 2, "length_penalty": 2.0},
    },
    {
        **ENDING,
        **{"num_beams": 5, "force_words_ids": [[[100, 101], [100, 102, 103]], [104]]},
        **{"num_return_sequences": 2, "early_stopping": "never", "length_penalty": -0.5},
    },
    {
        **ENDING,
        **{"num_beams": 3, "force_words_ids": [[100]], "num_return_sequences": 3},
        **{"early_stopping": "never", "length_penalty": 1.5, "no_repeat_ngram_size": 2},
    },
    {
        **{"num_beams": 4, "force_words_ids": [[100], [100, 101]], "num_return_sequences": 2},
        **{"eos_token_id": [2, *range(60, 90)], "repetition_penalty": 1.3},
    },
    # The prompt counts: it ends with "there".
    {"num_beams": 4, "force_words_ids": [[86, 74, 71, 84, 71]], "num_return_sequences": 2},
]
CASES = [
    *((kind, "diverse_beam_search", own) for own in DIVERSE for kind in ("llama", "gpt2", "bart")),
    *(("t5", "diverse_beam_search", own) for own in DIVERSE[:3]),
    *(
        (kind, "constrained_beam_search", own)
        for own in CONSTRAINED
        for kind in ("llama", "gpt2", "bart")
    ),
    *(("t5", "constrained_beam_search", own) for own in CONSTRAINED[:3]),
]


def save(folder: Path) -> None:
    """Save the tiny models for the other version of transformers."""
    from tests.tiny import tiny

    for kind in {kind for kind, _, _ in CASES}:
        tiny(kind).module.save_pretrained(folder / kind)
        tiny(kind).tokenizer.save_pretrained(folder / kind)


def write(folder: Path) -> None:
    """Decode every case."""
    import transformers

    assert transformers.__version__ == "4.51.3", "the reference is transformers 4.51.3"
    cases = [
        {"kind": kind, "prompt": PROMPT, "strategy": strategy, "settings": settings}
        | decoded(folder / kind, settings)
        for kind, strategy, own in CASES
        for settings in [{"max_new_tokens": NEW_TOKENS, **own}]
    ]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    REFERENCE.write_text(f"[\n{lines}\n]\n")


def decoded(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """New tokens and scores of one case; texts that ended are followed by padding."""
    from transformers import AutoConfig, PreTrainedTokenizerFast
    from transformers.models.auto import modeling_auto

    seq2seq = AutoConfig.from_pretrained(folder).is_encoder_decoder
    kind = "AutoModelForSeq2SeqLM" if seq2seq else "AutoModelForCausalLM"
    model = getattr(modeling_auto, kind).from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    with_scores = {"return_dict_in_generate": True, "output_scores": True}
    try:
        output = model.generate(ids, **settings, **with_scores)
    except RuntimeError:  # it has no scores if a text lacks a forced word
        output = model.generate(ids, **settings, return_dict_in_generate=True)
    scores = getattr(output, "sequences_scores", None)
    start = 1 if seq2seq else ids.shape[1]
    return {
        "sequences": output.sequences[:, start:].tolist(),
        "scores": None if scores is None else [number(score) for score in scores.tolist()],
    }


def number(score: float) -> float | None:
    """A score in the digits that a float32 has, or None for a text that was ruled out."""
    return float(f"{score:.7g}") if math.isfinite(score) else None


if __name__ == "__main__":
    {"save": save, "write": write}[sys.argv[1]](Path(sys.argv[2]))
