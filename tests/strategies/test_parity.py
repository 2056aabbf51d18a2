"""Token for token what the installed transformers' `generate` writes, on many kinds of model."""

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, StoppingCriteria, SynthIDTextWatermarkingConfig

from playground import Playground
from tests.tiny import KINDS, SIZE, assert_same_tokens, generate, tiny

PROMPT = "Hello there"
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("greedy", {}),
    "sample": ("sample", {}),
    "sample three": ("sample", {"num_return_sequences": 3, "top_p": 0.9, "top_k": 0}),
    "top_h": ("sample", {"top_h": 0.4, "temperature": 1.3}),
    "beam": ("beam_search", {"num_beams": 4, "num_return_sequences": 4}),
    "beam early": ("beam_search", {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0}),
    "beam never": (
        "beam_search",
        {"num_beams": 3, "early_stopping": "never", "length_penalty": -0.5},
    ),
    "beam never long": (
        "beam_search",
        {"num_beams": 2, "early_stopping": "never", "length_penalty": 1.5},
    ),
    "beam of one": ("beam_search", {"num_beams": 1}),
    "beam sample": ("beam_sample", {"num_beams": 3, "num_return_sequences": 2, "top_k": 20}),
    "narrow beam sample": ("beam_sample", {"num_beams": 4, "top_k": 3}),
}
KGW = {"greenlist_ratio": 0.25, "bias": 2.5, "hashing_key": 15485863, "context_width": 1}
SYNTHID = SynthIDTextWatermarkingConfig(ngram_len=3, keys=[1, 2, 3], sampling_table_size=256)
SHARED: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.4},
    "encoder repetition": {"encoder_repetition_penalty": 1.5},
    "n-grams": {"no_repeat_ngram_size": 2},
    "encoder n-grams": {"encoder_no_repeat_ngram_size": 2},
    "bad words": {"bad_words_ids": [[40], [50, 60]]},
    "bias": {"sequence_bias": [[[41], 4.0], [[70, 71], -3.0]]},
    "min length": {"min_length": 20},
    "min new tokens": {"min_new_tokens": 12},
    "end tokens": {"eos_token_id": [2, 90, 91]},
    "forced bos": {"forced_bos_token_id": 77},
    "forced eos": {"forced_eos_token_id": 2},
    "decay": {"exponential_decay_length_penalty": (4, 1.5)},
    "suppress": {"suppress_tokens": [10, 20, 30]},
    "begin suppress": {"begin_suppress_tokens": list(range(100, 200))},
    "guidance": {"guidance_scale": 1.7},
    "renormalize": {"renormalize_logits": True, "repetition_penalty": 1.2},
    "remove invalid": {"remove_invalid_values": True},
    "lefthash": {"watermarking_config": {**KGW, "seeding_scheme": "lefthash"}},
    "selfhash": {"watermarking_config": {**KGW, "seeding_scheme": "selfhash"}},
    "allowed tokens": {"prefix_allowed_tokens_fn": lambda row, ids: [5, 6, 7 + len(ids) % 50]},
}


def check(kind: str, strategy: str, settings: dict[str, Any], seed: int = 3) -> None:
    model = tiny(kind)
    [trace] = Playground(model).compare(
        PROMPT, [(strategy, settings)], max_new_tokens=20, seed=seed
    )
    assert trace.error is None
    sampled = strategy in ("sample", "beam_sample")
    arguments = {"max_new_tokens": 20, **settings, "do_sample": sampled}
    expected, scores = generate(model, PROMPT, arguments, seed)
    assert_same_tokens(trace, expected)
    if scores is not None:
        assert [s.score for s in trace.sequences] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_model_family_decodes_as_generate_does(kind: str, name: str) -> None:
    strategy, settings = STRATEGIES[name]
    check(kind, strategy, settings)


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam_search", "beam_sample"])
@pytest.mark.parametrize("name", SHARED)
def test_every_shared_setting_works_with_every_strategy(name: str, strategy: str) -> None:
    own = {"num_beams": 3} if "beam" in strategy else {}
    check("llama", strategy, {**SHARED[name], **own})


@pytest.mark.parametrize("name", ["repetition", "encoder n-grams", "forced bos", "guidance"])
def test_shared_settings_work_on_encoder_decoders(name: str) -> None:
    check("bart", "beam_search", {**SHARED[name], "num_beams": 3})


@pytest.mark.parametrize("strategy", ["sample", "beam_sample"])
def test_synthid_gives_the_tokens_of_generate(strategy: str) -> None:
    own = {"num_beams": 3} if "beam" in strategy else {}
    check("llama", strategy, {"watermarking_config": SYNTHID, **own})


def test_negative_prompts_give_the_tokens_of_generate() -> None:
    model = tiny("llama")
    negative = model.tokenizer("bye", return_tensors="pt").input_ids
    trace, by_ids = Playground(model).compare(
        PROMPT,
        [("greedy", {"negative_prompt": "bye"}), ("greedy", {"negative_prompt_ids": negative})],
        max_new_tokens=12,
        guidance_scale=2.0,
    )
    assert by_ids.sequences == trace.sequences
    arguments = {"max_new_tokens": 12, "guidance_scale": 2.0, "negative_prompt_ids": negative}
    expected, _ = generate(model, PROMPT, arguments, 0)
    assert_same_tokens(trace, expected)
    assert trace.forward_passes == 2 * len(expected[0])  # the processor's own passes count


class OnlyOdd(LogitsProcessor):
    """Rules out even tokens, the end token among them, by writing into the scores it was given."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, 0::2] = -torch.inf
        return scores


class EndsOn(StoppingCriteria):
    """Stops after a token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return input_ids[:, -1] == self.token


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam_search"])
def test_custom_processors_and_criteria_run_as_in_generate(strategy: str) -> None:
    model = tiny("llama")
    own = {"beam_search": {"num_beams": 3, "num_return_sequences": 3}, "sample": {"top_k": 0}}.get(
        strategy, {}
    )
    [free] = Playground(model).compare(
        PROMPT, [(strategy, own)], max_new_tokens=20, logits_processor=[OnlyOdd()]
    )
    last = free.sequences[0].token_ids[2]
    settings = {**own, "logits_processor": [OnlyOdd()], "stopping_criteria": [EndsOn(last)]}
    [trace] = Playground(model).compare(PROMPT, [(strategy, settings)], max_new_tokens=20)
    sampled = {"do_sample": strategy == "sample"}
    expected, _ = generate(model, PROMPT, {"max_new_tokens": 20, **settings, **sampled}, 0)
    assert [list(s.token_ids) for s in trace.sequences] == [
        ids[: ids.index(last) + 1] if last in ids else ids for ids in expected
    ]
    assert "EndsOn" in {sequence.stop.rule for sequence in trace.sequences}
    # The recorded logits are those from before the processor overwrote them.
    distribution = trace.steps[0].distribution
    assert any(c.token.id % 2 == 0 and c.raw > 0 and c.final == 0 for c in distribution.candidates)
    assert distribution.processors == ("only_odd",)
    assert distribution.kept == SIZE // 2


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam_search", "beam_sample"])
def test_only_the_seed_decides_what_is_sampled(strategy: str) -> None:
    lab = Playground(tiny("gpt2"))
    first, again = lab.compare(PROMPT, [strategy, strategy], max_new_tokens=12, seed=5)
    [other] = lab.compare(PROMPT, [strategy], max_new_tokens=12, seed=6)
    assert first.sequences == again.sequences
    assert (first.sequences == other.sequences) is ("sample" not in strategy)
