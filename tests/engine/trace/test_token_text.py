"""Decoding of single tokens: spaces and characters split over several tokens survive."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.models.loading import load
from engine.trace.token_text import TokenDecoder
from playground import Playground
from tests.tiny import tiny


@pytest.fixture(scope="module")
def byte_decoder() -> TokenDecoder:
    return TokenDecoder(tiny("llama").tokenizer)


def written(token_decoder: TokenDecoder, ids: list[int]) -> list[str]:
    pieces, pending = [], ()
    for id in ids:
        text, pending = token_decoder.add(pending, id)
        pieces.append(text)
    return pieces


@pytest.mark.parametrize("text", ["a 🌟 star", "naïve  café\n", "日本語", "👩‍🚀!", " x"])
def test_token_texts_join_to_the_text(text: str, byte_decoder: TokenDecoder) -> None:
    ids = tiny("llama").tokenizer(text).input_ids
    assert "".join(written(byte_decoder, ids)) == text == byte_decoder.text(ids)


def test_a_split_character_belongs_to_its_last_token(byte_decoder: TokenDecoder) -> None:
    ids = tiny("llama").tokenizer("🌟").input_ids
    assert written(byte_decoder, ids) == ["", "", "", "🌟"]


def test_single_bytes_of_a_character_are_shown_as_bytes(byte_decoder: TokenDecoder) -> None:
    ids = tiny("llama").tokenizer("🌟").input_ids
    assert [byte_decoder.token(id).text for id in ids] == ["<0xF0>", "<0x9F>", "<0x8C>", "<0x9F>"]


def test_invalid_bytes_do_not_hide_the_following_text(byte_decoder: TokenDecoder) -> None:
    star = tiny("llama").tokenizer("🌟").input_ids
    plain = tiny("llama").tokenizer(" ok then").input_ids
    assert "".join(written(byte_decoder, [star[0], *plain])).endswith(" ok then")


def test_special_tokens_have_a_text(byte_decoder: TokenDecoder) -> None:
    assert byte_decoder.token(2).text == "</s>"


def test_leading_spaces_are_kept_with_a_tokenizer_that_strips_them() -> None:
    words = ["<unk>", "▁a", "a", "▁the", "▁fox", "es"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    token_decoder = TokenDecoder(
        PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    )
    assert [token_decoder.token(id).text for id in (3, 4, 5)] == [" the", " fox", "es"]
    assert token_decoder.text([3, 4, 5]) == " the foxes"
    assert token_decoder.text([3, 4, 5], at_start=True) == "the foxes"


def test_an_emoji_of_several_tokens_is_decoded(embedded: Playground) -> None:
    ids = embedded.model.tokenizer("Hi 🌟!").input_ids
    pieces = written(embedded.token_decoder, ids)
    assert len(ids) > len(["Hi", "🌟!"]) + 1
    assert "".join(pieces) == "Hi 🌟!" and "" in pieces and "\ufffd" not in "".join(pieces)


@pytest.fixture(scope="module", params=["smollm2", "stories15m"])
def token_decoder(request: pytest.FixtureRequest) -> TokenDecoder:
    return TokenDecoder(load(request.param).tokenizer)


@pytest.mark.parametrize("text", ["dog", " dog", "ing home.", "\nNew", " ", "", " été ☃"])
def test_a_continuation_is_encoded_to_tokens_with_exactly_its_text(
    token_decoder: TokenDecoder, text: str
) -> None:
    assert token_decoder.text(token_decoder.ids(text)) == text
