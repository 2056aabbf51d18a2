"""Drafts of another vocabulary: translated, they continue the text and never change it."""

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from engine.drafting.cross_tokenizer import CrossTokenizer
from engine.models.loading import EMBEDDED
from engine.trace import Trace
from playground import Playground
from tests.draft_models import readable
from tests.tiny import tiny

BROKEN = "\N{REPLACEMENT CHARACTER}"
# Several scripts, characters of several tokens, and spaces that tokenizers strip.
WORDS = [
    "  ",
    "\n\n",
    " the",
    "ing",
    " don't",
    "naïve",
    " 1,000",
    "ha ha",
    "🏳️‍🌈",
    "<|im_end|>",
    "</s>",
]
PIECES = st.sampled_from([*"aeéßЖ文ि🙂.,!'\"\t\n<|>_7", *WORDS]) | st.characters(codec="utf-8")
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@cache
def tokenizer(name: str) -> Any:
    return AutoTokenizer.from_pretrained(str(EMBEDDED[name]()))


@cache
def translator(target: str, draft: str) -> CrossTokenizer:
    return CrossTokenizer(tokenizer(target), tokenizer(draft))


def decoded(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("names", [("smollm2", "stories15m"), ("stories15m", "smollm2")])
@settings(deadline=None, max_examples=150)
@given(start=TEXTS, more=TEXTS, cut=st.integers(0, 3))
def test_translated_drafts_have_exactly_the_drafted_text(
    names: tuple[str, str], start: str, more: str, cut: int
) -> None:
    target, draft = map(tokenizer, names)
    text = target(start).input_ids
    read = translator(*names).to_draft(text)
    new = draft(more, add_special_tokens=False).input_ids
    new = new[: len(new) - cut]  # also in the middle of a character
    tokens = translator(*names).to_target(text, read, new)
    added = decoded(draft, [*read, *new])[len(decoded(draft, read)) :]
    before = decoded(target, text)
    assert decoded(target, [*text, *tokens]) in (before, before + added.rstrip(BROKEN))


@settings(deadline=None, max_examples=150)
@given(start=TEXTS, more=TEXTS)
def test_a_draft_that_continues_the_text_is_translated_completely(start: str, more: str) -> None:
    target, draft = tokenizer("smollm2"), tokenizer("stories15m")
    text, read, whole = (
        target(start).input_ids,
        draft(start).input_ids,
        draft(start + more).input_ids,
    )
    spellable = all(
        decoded(own, own(start + more).input_ids) == start + more for own in (target, draft)
    )
    if not spellable or whole[: len(read)] != read or BROKEN in start + more:
        return  # one vocabulary cannot represent this text
    tokens = translator("smollm2", "stories15m").to_target(text, read, whole[len(read) :])
    assert decoded(target, [*text, *tokens]) == start + more


@pytest.mark.parametrize(
    ("start", "more"),
    [
        ("Once upon a time there was a little girl", " named Lily. She loved to play"),
        ("ha ha ha ha ha ha ha ha ha ha ha ha ha ha", " ha ha ha"),  # the position is ambiguous
        ("a  double  space", "  here  too"),
        ("line\nline\n", "\nmore\n"),
        ("emoji 🙂🙂", "🙂 ok 😀"),
        ("x = [1, 2, 3", "4, 5]"),
        ("un", "believable story"),
    ],
)
def test_a_draft_is_tokenized_as_the_target_tokenizes_it(start: str, more: str) -> None:
    target, draft = tokenizer("smollm2"), tokenizer("stories15m")
    text, spelled = target(start).input_ids, target(start + more).input_ids
    both = translator("smollm2", "stories15m")
    read = both.to_draft(text)
    new = draft(start + more).input_ids[len(read) :]
    assert both.to_target(text, read, new) == spelled[len(text) :]


def test_existing_tokens_are_never_merged_with_drafted_ones() -> None:
    target, draft = tokenizer("smollm2"), tokenizer("stories15m")
    text = target("The cat").input_ids
    assert len(target("The cats").input_ids) == len(text)  # together they would be one token
    new = draft.convert_tokens_to_ids(["s", "▁are"])
    tokens = translator("smollm2", "stories15m").to_target(text, draft("The cat").input_ids, new)
    assert decoded(target, [*text, *tokens]) == "The cats are"


@pytest.mark.parametrize("id", ["universal_speculative", "speculative"])
def test_a_model_accepts_all_of_its_own_drafts_in_another_vocabulary(id: str) -> None:
    way = {"assistant_confidence_threshold": 0.0, "assistant_model": readable(reverse=True)}
    greedy, trace, five = Playground(readable()).compare(
        "Hello there",
        ["greedy", (id, way), (id, {**way, "num_assistant_tokens": 5})],
        max_new_tokens=30,
    )
    assert trace.text == five.text == greedy.text
    fates = Counter(step.notes["verdict"] for step in five.steps)
    assert fates == {"accepted": 25, "bonus": 5}
    assert five.draft_passes == 24  # after the prompt, which the previous run has evaluated
    assert all("q" not in step.notes for step in five.steps)  # translated tokens have no q


def test_drafts_of_another_vocabulary_are_accepted_where_they_equal_the_models_samples() -> None:
    way = {"do_sample": True, "top_k": 2, "assistant_model": readable(reverse=True)}
    [trace] = Playground(readable()).compare(
        "Hello there", [("universal_speculative", way)], max_new_tokens=30, seed=1
    )
    fates = Counter(step.notes["verdict"] for step in trace.steps)
    assert fates["accepted"] and fates["rejected"] == fates["resampled"] > 0


def test_universal_speculative_rejects_encoder_decoder_models() -> None:
    with pytest.raises(Exception, match="universal_speculative needs a decoder-only model"):
        Playground(tiny("bart")).compare("Hello", ["universal_speculative"])


def test_the_embedded_models_draft_for_each_other(embedded: Playground) -> None:
    way = {"num_assistant_tokens": 4, "assistant_confidence_threshold": 0.1}
    greedy, trace = embedded.compare(
        "Once upon a time there was a little girl who",
        ["greedy", ("universal_speculative", way)],
        max_new_tokens=24,
    )
    assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    fates = Counter(step.notes["verdict"] for step in trace.steps)
    assert fates["accepted"] >= 6 and trace.forward_passes < greedy.forward_passes
    assert Trace.from_json(trace.to_json()) == trace
