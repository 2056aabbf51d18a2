"""The Python API: results, and errors for invalid input."""

import gc
from typing import Any

import pytest
import torch

from engine.trie.pool import CHUNK
from playground import Limits, Playground, PlaygroundError
from tests.tiny import assert_same_tokens, tiny

BAD: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "an empty prompt": ("", ["greedy"], {}, "the prompt is empty"),
    "a blank prompt": (" \n ", ["greedy"], {}, "the prompt is empty"),
    "a huge prompt": ("word " * 20_000, ["greedy"], {}, "100000 characters; at most 20000"),
    "a prompt past the context": ("ab" * 200, ["greedy"], {}, "can attend to"),
    "no new tokens": ("hi", ["greedy"], {"max_new_tokens": 0}, "max_new_tokens is 0; it must be"),
    "a million tokens": (
        "hi",
        ["greedy"],
        {"max_new_tokens": 1_000_000},
        "whole number of at least 1 and at most 1000",
    ),
    "no beams": ("hi", [("beam_search", {"num_beams": 0})], {}, "num_beams is 0; it must be"),
    "too many beams": ("hi", [("beam_search", {"num_beams": 99})], {}, "at most 16"),
    "top_p of 2": ("hi", [("sample", {"top_p": 2})], {}, "top_p is 2; it must be a number"),
    "an unknown strategy": ("hi", ["greedie"], {}, "did you mean 'greedy'"),
    "a setting of another strategy": ("hi", [("greedy", {"top_p": 0.9})], {}, "unknown setting"),
    "a misspelt shared setting": ("hi", ["greedy"], {"repetition_penalti": 1.2}, "did you mean"),
    "not a strategy": ("hi", [("greedy",)], {}, "its name, or as"),
    "another value of a fixed setting": ("hi", ["greedy"], {"do_sample": True}, "always has False"),
    "no strategy": ("hi", [], {}, "there is no strategy to run"),
    "seven strategies": ("hi", ["greedy"] * 7, {}, "at most 6 run side by side"),
    "more sequences than beams": (
        "hi",
        [("beam_search", {"num_beams": 2, "num_return_sequences": 3})],
        {},
        "num_return_sequences",
    ),
    "a word that is several tokens": ("hi", ["greedy"], {"suppress_tokens": ["fox"]}, "single"),
    "a token id past the vocabulary": ("hi", ["greedy"], {"bad_words_ids": [[9999]]}, "token ids"),
    "a bias without a number": (
        "hi",
        ["greedy"],
        {"sequence_bias": {"a": "b"}},
        "it must be a number",
    ),
    "an unknown watermark": ("hi", ["greedy"], {"watermarking_config": {"x": 1}}, "watermark"),
    "an empty stop string": ("hi", ["greedy"], {"stop_strings": [""]}, "stop_strings"),
    "a chat without a template": ([{"role": "user", "content": "hi"}], ["greedy"], {}, "template"),
    "not a chat": ([{"text": "hi"}], ["greedy"], {}, "a chat message is"),
}


@pytest.fixture(scope="module")
def lab() -> Playground:
    return Playground(tiny("llama"))


@pytest.mark.parametrize("name", BAD)
def test_invalid_input_raises_and_frees_its_memory(name: str, lab: Playground) -> None:
    prompt, choices, shared, words = BAD[name]
    lab.compare("ok", ["greedy"], max_new_tokens=2)
    gc.collect()
    before = lab._backends.trie.backend.used
    with pytest.raises(PlaygroundError, match=words):
        lab.compare(prompt, choices, **shared)
    gc.collect()
    assert lab._backends.trie.backend.used <= before + 2  # at most a short prompt more is kept
    assert lab.compare("ok", ["greedy"], max_new_tokens=2)[0].error is None


def test_fixed_settings_may_be_given_with_their_value(lab: Playground) -> None:
    [trace] = lab.compare("hi", [("sample", {"do_sample": True, "num_beams": 1})], max_new_tokens=2)
    assert trace.error is None


def test_stream_raises_when_it_is_called(lab: Playground) -> None:
    with pytest.raises(PlaygroundError):
        lab.stream("", ["greedy"])


def test_stream_yields_every_step_and_ends_with_the_traces(lab: Playground) -> None:
    choices = ["greedy", ("beam_search", {"num_beams": 3})]
    streamed: dict[int, dict[int, Any]] = {0: {}, 1: {}}
    traces = {}
    for update in lab.stream("hello", choices, max_new_tokens=9):
        assert update.run not in traces
        streamed[update.run].update({step.id: step for step in update.steps})
        assert update.lead is None or update.lead in streamed[update.run]
        if update.trace is not None:
            traces[update.run] = update.trace
    for run, trace in traces.items():
        assert tuple(streamed[run].values()) == trace.steps
    assert list(traces) and len(traces) == 2


def test_words_become_tokens_with_and_without_a_leading_space(embedded: Playground) -> None:
    prompt = "The capital of France is"
    [free] = embedded.compare(prompt, ["greedy"], max_new_tokens=3)
    assert "Paris" in free.text
    [without, biased] = embedded.compare(
        prompt,
        [("greedy", {"bad_words_ids": ["Paris"]}), ("greedy", {"sequence_bias": {"Lyon": 30.0}})],
        max_new_tokens=3,
    )
    assert "Paris" not in without.text and "Lyon" in biased.text
    paris = {" Paris", "Paris"}
    cut = {c.token.text for c in without.steps[0].distribution.candidates if c.final == 0}
    assert cut & paris


def test_trace_names_the_rule_that_ended_the_text(embedded: Playground) -> None:
    prompt = "The capital of France is"
    stopped, ended, timed, long = embedded.compare(
        prompt,
        [
            ("greedy", {"stop_strings": ["zebra", "."]}),
            ("greedy", {"eos_token_id": ["."]}),
            ("greedy", {"max_time": 1e-9}),
            "greedy",
        ],
        max_new_tokens=4,
    )
    assert (stopped.stop.rule, stopped.stop.detail) == ("stop_string", ".")
    assert (ended.stop.rule, ended.stop.detail) == ("end_token", ".")
    assert timed.stop.rule == "time" and len(timed.sequences[0].token_ids) == 1
    assert (long.stop.rule, long.stop.detail) == ("length", "4 new tokens")


def test_chat_uses_the_chat_template_of_the_model(embedded: Playground) -> None:
    messages = [{"role": "user", "content": "Say hello."}]
    [trace] = embedded.compare(messages, ["greedy"], max_new_tokens=4)
    assert trace.prompt == embedded.model.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    ids = embedded.model.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert [token.id for token in trace.prompt_tokens] == list(ids)


def test_settings_default_to_the_generation_config_of_the_model() -> None:
    model = tiny("qwen3")
    config = model.module.generation_config
    before = config.top_k
    config.top_k = 7
    try:
        lab = Playground(model)
        assert lab.defaults("sample")["top_k"] == 7
        own, given = lab.compare("hi", ["sample", ("sample", {"top_k": 3})], max_new_tokens=4)
    finally:
        config.top_k = before
    assert own.settings["top_k"] == 7 and own.steps[0].distribution.kept == 7
    assert given.settings["top_k"] == 3 and given.steps[0].distribution.kept == 3


def test_raw_values_are_before_and_final_values_after_the_processors(embedded: Playground) -> None:
    prompt = "Once upon a time"
    [trace] = embedded.compare(
        prompt, [("sample", {"temperature": 0.5, "top_k": 5})], max_new_tokens=3
    )
    ids = embedded.model.tokenizer(prompt).input_ids
    for at, step in enumerate(trace.path(trace.sequences[0].steps[-1])):
        before = torch.tensor([ids + list(trace.sequences[0].token_ids[:at])])
        with torch.no_grad():
            logits = embedded.model.module(before).logits[0, -1]
        raw = logits.log_softmax(-1)
        kept = (logits / 0.5).topk(5)
        final = torch.full_like(logits, -torch.inf).scatter(0, kept.indices, kept.values)
        final = final.log_softmax(-1)
        token = step.token.id
        assert step.raw == pytest.approx(float(raw[token]), abs=1e-3)
        assert step.final == pytest.approx(float(final[token]), abs=1e-3)
        assert step.rank == int((logits > logits[token]).sum()) + 1
        assert step.distribution.kept == 5
        entropy = -(raw.exp() * raw).sum()
        assert step.distribution.raw_entropy == pytest.approx(float(entropy), abs=1e-3)
        for candidate in step.distribution.candidates:
            id = candidate.token.id
            assert candidate.raw == pytest.approx(float(raw[id].exp()), abs=1e-4)
            assert candidate.final == pytest.approx(float(final[id].exp()), abs=1e-4)
            assert candidate.stages[0] == pytest.approx(
                float((logits / 0.5).softmax(-1)[id]), abs=1e-4
            )


def test_limits_of_the_playground_apply() -> None:
    lab = Playground(tiny("llama"), limits=Limits(max_new_tokens=5, rows=2, strategies=1))
    with pytest.raises(PlaygroundError, match="at most 5"):
        lab.compare("hi", ["greedy"], max_new_tokens=6)
    with pytest.raises(PlaygroundError, match="at most 2"):
        lab.compare("hi", [("sample", {"num_return_sequences": 3})], max_new_tokens=5)
    with pytest.raises(PlaygroundError, match="at most 1 run"):
        lab.compare("hi", ["greedy", "sample"], max_new_tokens=5)


def test_prompt_of_several_chunks_gives_the_tokens_of_generate(embedded: Playground) -> None:
    prompt = "The old harbour town woke slowly, and the gulls cried. " * 60
    ids = embedded.model.tokenizer(prompt, return_tensors="pt").input_ids
    assert ids.shape[1] > CHUNK
    [trace] = embedded.compare(prompt, ["greedy"], max_new_tokens=5)
    expected = embedded.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False
    )
    assert_same_tokens(trace, [expected[0, ids.shape[1] :].tolist()])
