"""Scoring given texts: each token's probability under the model and a strategy's settings."""

from typing import Any

import pytest

from engine.scoring import TOKENS_PER_PASS
from engine.trace import EVENTS, Trace
from playground import Limits, Playground, PlaygroundError
from tests.tiny import SIZE, tiny

OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("greedy", {"repetition_penalty": 1.3}),
    "warpers": ("sample", {"temperature": 1.4, "top_k": 30, "top_p": 0.9}),
    "guidance": ("sample", {"guidance_scale": 1.5}),
    "synthid": (
        "sample",
        {"watermarking_config": {"ngram_len": 3, "keys": [1, 2], "sampling_table_size": 256}},
    ),
    "green list": ("sample", {"watermarking_config": {"seeding_scheme": "selfhash"}}),
    "beams": ("beam_search", {"num_beams": 3, "repetition_penalty": 1.5}),
    "dola": ("dola", {"repetition_penalty": 1.2}),
    "drawn dola": ("dola", {"do_sample": True, "dola_layers": [0, 1]}),
    "drafts": ("prompt_lookup", {"do_sample": True, "top_p": 0.9}),
}

INVALID: dict[str, tuple[Any, Any, str]] = {
    "no text": ("", ["greedy"], "the text to score is empty"),
    "no tokens": ([], ["greedy"], "the text to score is empty"),
    "a token past the vocabulary": ([SIZE], ["greedy"], f"text has {SIZE}; token ids are"),
    "a number": (5, ["greedy"], "text is a text or a list of token ids"),
    "too many tokens": ([70] * 21, ["greedy"], "text has 21 tokens; at most 20"),
    "too long a text": ("x" * 21, ["greedy"], "text has 21 tokens; at most 20"),
    "far too long a text": ("x" * 60, ["greedy"], "60 characters; at most 50"),
    "code of one's own": ("ab", [("custom", {"custom_generate": max})], "custom cannot score"),
    "no strategy": ("ab", [], "there is no strategy"),
    "an unknown strategy": ("ab", ["greedie"], "did you mean"),
}


def same_numbers(scored: Trace, run: Trace) -> None:
    """Assert that a scored text has the numbers of the run that generated it."""
    written = [run.steps[id] for id in run.sequences[0].steps]
    assert [step.token for step in scored.steps] == [step.token for step in written]
    for ours, theirs in zip(scored.steps, written, strict=True):
        assert ours.raw == pytest.approx(theirs.raw, abs=1e-4)
        assert ours.final == pytest.approx(theirs.final, abs=1e-4)
        assert (ours.rank, ours.text) == (theirs.rank, theirs.text)
        assert ours.notes.get("green") == theirs.notes.get("green")
        assert ours.distribution.processors == theirs.distribution.processors
        assert ours.distribution.kept_after == theirs.distribution.kept_after


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("backend", ["trie", "plain"])
def test_scoring_a_run_s_text_gives_the_run_s_numbers(name: str, backend: str) -> None:
    lab = Playground(tiny("llama"))
    if backend == "plain":
        lab._backends.trie_length = 0
    [run] = lab.compare("one two one two", [OWN[name]], max_new_tokens=12, seed=3)
    ids = run.sequences[0].token_ids
    [scored] = lab.score("one two one two", ids, [OWN[name]], max_new_tokens=12, seed=3)
    assert scored.error is None and scored.sequences[0].token_ids == ids
    assert scored.settings == run.settings and scored.prompt_tokens == run.prompt_tokens
    same_numbers(scored, run)


def test_scoring_a_sample_of_the_embedded_model_gives_its_numbers(embedded: Playground) -> None:
    settings = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.02}
    [run] = embedded.compare("Once upon a time", [("sample", settings)], max_new_tokens=20)
    other, scored = embedded.score(
        "Once upon a time", run.sequences[0].token_ids, ["greedy", ("sample", settings)]
    )
    same_numbers(scored, run)
    assert [step.raw for step in other.steps] == pytest.approx(
        [step.raw for step in run.steps], abs=1e-4
    )
    assert scored.text == run.text


def test_the_greedy_text_has_probability_1_with_top_k_1() -> None:
    lab = Playground(tiny("llama"))
    [run] = lab.compare("one two", ["greedy"], max_new_tokens=10)
    [scored] = lab.score("one two", run.sequences[0].token_ids, [("sample", {"top_k": 1})])
    assert [step.final for step in scored.steps] == [0.0] * len(run.steps)


def test_a_cut_token_has_no_final_probability() -> None:
    lab = Playground(tiny("llama"))
    [run] = lab.compare("one two", ["greedy"], max_new_tokens=6)
    ids = list(run.sequences[0].token_ids)
    without = {"suppress_tokens": [ids[2]]}
    [scored] = lab.score("one two", ids, [("greedy", without)])
    assert scored.steps[2].final is None and scored.steps[2].raw is not None
    assert scored.steps[0].final is not None


def test_scored_tokens_have_the_event_given_and_share_one_pass() -> None:
    lab = Playground(tiny("llama"))
    sizes: list[int] = []
    hook = lab._backends._view.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        traces = lab.score("one two", "three", ["greedy", ("sample", {"top_k": 5})])
    finally:
        hook.remove()
    assert sizes == [len("one two"), len("thre")]  # nothing is evaluated after the last token
    for trace in traces:
        assert {step.event for step in trace.steps} == {"given"} <= set(EVENTS)
        assert trace.text == "three" and trace.sequences[0].steps == (0, 1, 2, 3, 4)
        assert (trace.stop.rule, trace.stop.detail) == ("scored", "5 tokens")
        assert Trace.from_json(trace.to_json()) == trace


def test_a_single_token_can_be_scored_after_a_prefix() -> None:
    lab = Playground(tiny("llama"))
    [forked] = lab.score("one two", "c", ["greedy"], prefix="ab")
    [whole] = lab.score("one two", "abc", ["greedy"])
    assert [token.text for token in forked.prefix] == ["a", "b"] and len(forked.steps) == 1
    assert forked.steps[0].raw == pytest.approx(whole.steps[2].raw, abs=1e-4)


def test_a_long_text_is_scored_in_several_passes() -> None:
    lab = Playground(tiny("llama"))
    text = [70 + at % 90 for at in range(TOKENS_PER_PASS + 40)]
    [trace] = lab.score("hi", text, ["greedy"])
    assert trace.error is None and trace.sequences[0].token_ids == tuple(text)
    [tail] = lab.score("hi", text[-3:], ["greedy"], prefix=text[:-3])
    assert [step.raw for step in tail.steps] == pytest.approx(
        [step.raw for step in trace.steps[-3:]], abs=1e-3
    )


@pytest.mark.parametrize("kind", ["t5", "mamba"])
def test_scoring_works_on_the_plain_backend(kind: str) -> None:
    lab = Playground(tiny(kind))
    choice = ("sample", {"top_k": 12})
    [run] = lab.compare("one two", [choice], max_new_tokens=8, seed=1)
    [scored] = lab.score("one two", run.sequences[0].token_ids, [choice])
    same_numbers(scored, run)
    assert scored.text == run.text


@pytest.mark.parametrize("name", INVALID)
def test_texts_that_cannot_be_scored_are_rejected(name: str) -> None:
    text, choices, words = INVALID[name]
    lab = Playground(tiny("llama"), limits=Limits(prompt_characters=50, max_new_tokens=20))
    with pytest.raises(PlaygroundError, match=words):
        lab.score("hi", text, choices, max_new_tokens=8)
