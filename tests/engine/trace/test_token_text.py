"""Spelling: spaces survive, and so do characters split over several tokens."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.models.loading import load
from engine.trace.token_text import Speller
from playground import Playground
from tests.tiny import tiny


@pytest.fixture(scope="module")
def byte_speller() -> Speller:
    return Speller(tiny("llama").tokenizer)


def written(speller: Speller, ids: list[int]) -> list[str]:
    pieces, pending = [], ()
    for id in ids:
        text, pending = speller.add(pending, id)
        pieces.append(text)
    return pieces


@pytest.mark.parametrize("text", ["a 🌟 star", "naïve  café\n", "日本語", "👩‍🚀!", " x"])
def test_what_tokens_add_makes_up_the_text(text: str, byte_speller: Speller) -> None:
    ids = tiny("llama").tokenizer(text).input_ids
    assert "".join(written(byte_speller, ids)) == text == byte_speller.text(ids)


def test_a_character_appears_with_its_last_byte(byte_speller: Speller) -> None:
    ids = tiny("llama").tokenizer("🌟").input_ids
    assert written(byte_speller, ids) == ["", "", "", "🌟"]


def test_bytes_that_are_no_character_are_spelled_as_bytes(byte_speller: Speller) -> None:
    ids = tiny("llama").tokenizer("🌟").input_ids
    assert [byte_speller.token(id).text for id in ids] == ["<0xF0>", "<0x9F>", "<0x8C>", "<0x9F>"]


def test_broken_bytes_do_not_swallow_what_follows(byte_speller: Speller) -> None:
    star = tiny("llama").tokenizer("🌟").input_ids
    plain = tiny("llama").tokenizer(" ok then").input_ids
    assert "".join(written(byte_speller, [star[0], *plain])).endswith(" ok then")


def test_special_tokens_are_spelled(byte_speller: Speller) -> None:
    assert byte_speller.token(2).text == "</s>"


def test_a_tokenizer_that_strips_spaces_keeps_them_here() -> None:
    words = ["<unk>", "▁a", "a", "▁the", "▁fox", "es"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    speller = Speller(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))
    assert [speller.token(id).text for id in (3, 4, 5)] == [" the", " fox", "es"]
    assert speller.text([3, 4, 5]) == " the foxes"
    assert speller.text([3, 4, 5], fresh=True) == "the foxes"


def test_the_embedded_model_writes_an_emoji_over_several_tokens(embedded: Playground) -> None:
    ids = embedded.model.tokenizer("Hi 🌟!").input_ids
    pieces = written(embedded.speller, ids)
    assert len(ids) > len(["Hi", "🌟!"]) + 1
    assert "".join(pieces) == "Hi 🌟!" and "" in pieces and "\ufffd" not in "".join(pieces)


@pytest.fixture(scope="module", params=["smollm2", "stories15m"])
def speller(request: pytest.FixtureRequest) -> Speller:
    return Speller(load(request.param).tokenizer)


@pytest.mark.parametrize("text", ["dog", " dog", "ing home.", "\nNew", " ", "", " été ☃"])
def test_words_behind_a_text_become_tokens_that_spell_just_them(
    speller: Speller, text: str
) -> None:
    assert speller.text(speller.ids(text)) == text
