"""Runs that continue from a prefix (forks)."""

from typing import Any

import pytest
import torch
from transformers import set_seed

from engine.models.model import Model
from engine.trace import Stop, Trace
from playground import Limits, Playground, PlaygroundError
from tests.tiny import SIZE, _unpadded, tiny

PROMPT = "The old harbour town"
# Strategies with settings that make them equal to greedy decoding.
AS_GREEDY = [
    "greedy",
    "prompt_lookup",
    "early_exit",
    "speculative",
    ("beam_search", {"num_beams": 1}),
    ("contrastive_search", {"penalty_alpha": 0.0}),
    ("sample", {"top_k": 1}),
]
PREFIX = [70, 80, 90, 100]

INVALID: dict[str, tuple[Any, str]] = {
    "a token past the vocabulary": ([SIZE], f"prefix has {SIZE}; token ids are"),
    "a negative token": ([-1], "prefix has -1; token ids are"),
    "half a token": ([1.5], "prefix has 1.5; token ids are"),
    "a truth value": ([True], "prefix has True; token ids are"),
    "words among tokens": ([70, "fox"], "prefix has 'fox'; token ids are"),
    "a number": (7, "a text or a list of token ids, not 7"),
    "bytes": (b"abc", "a text or a list of token ids"),
    "too many tokens": ([70] * 21, "prefix has 21 tokens; at most 20"),
    "too long a text": ("x" * 300, "prompt and the prefix have 302 characters; at most 300"),
    "past the context": ("x" * 250, "2 tokens of prompt, 250 of prefix and 8 new ones are more"),
}


def generated(
    model: Model, prompt: str, prefix: list[int], settings: dict[str, Any], seed: int
) -> list[list[int]]:
    """The new tokens of transformers' `generate` after prompt and prefix."""
    ids = model.tokenizer(prompt, return_tensors="pt").input_ids
    after = torch.tensor([prefix])
    arguments: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.is_encoder_decoder:
        start = torch.tensor([[model.module.config.decoder_start_token_id]])
        arguments["decoder_input_ids"] = torch.cat([start, after], dim=-1)
        start_of_text = 1 + len(prefix)
    else:
        arguments["input_ids"] = torch.cat([ids, after], dim=-1)
        arguments["attention_mask"] = torch.ones_like(arguments["input_ids"])
        start_of_text = ids.shape[1] + len(prefix)
    set_seed(seed)
    rows = model.module.generate(**arguments, **settings)[:, start_of_text:].tolist()
    return [_unpadded(row, model) for row in rows]


def tokens(trace: Trace) -> list[list[int]]:
    return [list(sequence.token_ids) for sequence in trace.sequences]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mamba", "t5", "bart"])
@pytest.mark.parametrize(
    "strategy", ["greedy", "sample", "beam_search", "beam_sample"], ids=lambda name: name
)
@pytest.mark.parametrize("shared", [{}, {"repetition_penalty": 1.3, "min_new_tokens": 5}], ids=str)
def test_tokens_after_a_prefix_equal_those_of_generate(
    kind: str, strategy: str, shared: dict[str, Any]
) -> None:
    model, beams = tiny(kind), {"num_beams": 3} if "beam" in strategy else {}
    [trace] = Playground(model).compare(
        "Hello there", [(strategy, beams)], prefix=PREFIX, max_new_tokens=10, seed=6, **shared
    )
    assert trace.error is None and [token.id for token in trace.prefix] == PREFIX
    settings = {"do_sample": "sample" in strategy, "max_new_tokens": 10, **beams, **shared}
    assert tokens(trace) == generated(model, "Hello there", PREFIX, settings, seed=6)


def test_strategies_equal_to_greedy_continue_the_greedy_text(embedded: Playground) -> None:
    [whole] = embedded.compare(PROMPT, ["greedy"], max_new_tokens=16)
    ids = whole.sequences[0].token_ids
    for length in (1, 7, 15):
        for at in range(0, len(AS_GREEDY), 4):
            forks = embedded.compare(
                PROMPT, AS_GREEDY[at : at + 4], prefix=ids[:length], max_new_tokens=16 - length
            )
            for fork in forks:
                assert fork.error is None
                assert fork.sequences[0].token_ids == ids[length:]
                assert fork.stop == Stop("length", f"{16 - length} new tokens")
                assert "".join(token.text for token in fork.prefix) + fork.text == whole.text


def test_prefix_is_recorded_apart_from_prompt_and_steps() -> None:
    lab = Playground(tiny("llama"))
    [trace] = lab.compare("one two", ["greedy"], prefix="ab", max_new_tokens=5)
    assert trace.prompt == "one two" and len(trace.prompt_tokens) == len("one two")
    assert [token.text for token in trace.prefix] == ["a", "b"]
    assert len(trace.steps) == 5 == len(trace.sequences[0].token_ids)
    assert trace.steps[0].parent is None
    assert Trace.from_json(trace.to_json()) == trace


def test_empty_prefix_equals_no_prefix() -> None:
    lab = Playground(tiny("llama"))
    plain, empty, nothing = (
        lab.compare("one two", ["greedy"], max_new_tokens=4, **given)[0]
        for given in ({}, {"prefix": ""}, {"prefix": []})
    )
    assert plain.prefix == empty.prefix == nothing.prefix == ()
    assert plain.sequences == empty.sequences == nothing.sequences


def test_only_new_tokens_of_a_prefix_are_evaluated() -> None:
    lab = Playground(tiny("llama"))
    sizes: list[int] = []
    hook = lab.model.module.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        lab.compare(
            "before", ["greedy"], max_new_tokens=1
        )  # the new hook makes the playground check the model again
        sizes.clear()
        lab.compare("one two", ["greedy"], max_new_tokens=1)
        lab.compare("one two", ["greedy"], prefix="abc", max_new_tokens=1)
        lab.compare("one two", ["greedy"], prefix="abc", max_new_tokens=1)
    finally:
        hook.remove()
    assert sizes == [len("one two"), len("abc")]


def test_character_split_between_prefix_and_text_is_decoded(embedded: Playground) -> None:
    star = embedded.model.tokenizer(" 🌟", add_special_tokens=False).input_ids
    assert len(star) > 2
    prompt = len(embedded.model.tokenizer("Hi").input_ids)
    for length in range(1, len(star)):
        [trace] = embedded.compare(
            "Hi",
            ["greedy"],
            prefix=star[:length],
            max_new_tokens=len(star) - length,
            prefix_allowed_tokens_fn=lambda row, ids: [star[len(ids) - prompt]],
        )
        added = "".join(step.text for step in trace.steps)
        assert added.strip() == "🌟" and trace.text == added
        assert all("\ufffd" not in token.text for token in trace.prefix)


def test_leading_space_after_a_prefix_is_kept_by_encoder_decoders() -> None:
    model = tiny("t5")
    space = model.tokenizer(" ").input_ids
    [trace] = Playground(model).compare(
        "hi",
        ["greedy"],
        prefix="a",
        max_new_tokens=1,
        prefix_allowed_tokens_fn=lambda row, ids: space,
    )
    assert trace.text == " " == trace.steps[0].text


@pytest.mark.parametrize("name", INVALID)
def test_invalid_prefix_raises_an_error_that_says_why(name: str) -> None:
    prefix, words = INVALID[name]
    lab = Playground(tiny("llama"), limits=Limits(prompt_characters=300, max_new_tokens=20))
    with pytest.raises(PlaygroundError, match=words):
        lab.stream("hi", ["greedy"], prefix=prefix, max_new_tokens=8)


def test_draft_model_of_another_vocabulary_drafts_after_a_prefix(embedded: Playground) -> None:
    [plain] = embedded.compare(PROMPT, ["greedy"], prefix=" was", max_new_tokens=12)
    draft = ("universal_speculative", {"assistant_model": "stories15m"})
    [drafted] = embedded.compare(PROMPT, [draft], prefix=" was", max_new_tokens=12)
    assert drafted.error is None and drafted.sequences[0].token_ids == plain.sequences[0].token_ids
    assert drafted.draft_passes > 0
