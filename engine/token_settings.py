"""Replaces words by token ids in the settings that take tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from engine.errors import PlaygroundError


class TokenSettings:
    """Replaces words with the ids of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary

    def resolve(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with every word replaced by token ids."""
        parsers = {
            "bad_words_ids": self._phrases,
            "force_words": self._constraints,
            "force_words_ids": self._constraints,
            "sequence_bias": self._biases,
            "suppress_tokens": self._tokens,
            "begin_suppress_tokens": self._tokens,
            "eos_token_id": self._tokens,
            "forced_bos_token_id": self._one_token,
            "forced_eos_token_id": self._tokens,
        }
        return {
            name: parsers[name](name, value) if name in parsers else value
            for name, value in settings.items()
        }

    def encodings(self, word: str) -> list[list[int]]:
        """The tokens of a word at the start of a text and after a space."""
        bare = word.strip()
        if not bare:
            raise PlaygroundError(f"the word is {word!r}; it must not be empty")
        encoded = (
            self._tokenizer(text, add_special_tokens=False).input_ids for text in (bare, f" {bare}")
        )
        return list(map(list, dict.fromkeys(tuple(ids) for ids in encoded)))

    def _phrases(self, name: str, value: Any) -> list[list[int]]:
        items = [value] if isinstance(value, str) else _listed(name, value)
        return [ids for item in items for ids in self._encoded(name, item)]

    def _constraints(self, name: str, value: Any) -> list[Any]:
        """Constraints in transformers' form: token ids, or lists of token ids as alternatives."""
        items = [value] if isinstance(value, str) else _listed(name, value)
        if not items:
            raise PlaygroundError(f"{name} is an empty list; it must name at least one word")
        return [self._constraint(name, item) for item in items]

    def _constraint(self, name: str, item: Any) -> list[Any]:
        options = [item] if isinstance(item, str) else _listed(name, item)
        if not any(isinstance(option, str) for option in options):
            nested = options and isinstance(options[0], list | tuple)
            return [self.ids(name, ids) for ids in options] if nested else self.ids(name, options)
        encoded = [tuple(ids) for option in options for ids in self._encoded(name, option)]
        # A text with "ships" also has "ship": the shorter alternative is enough.
        return [
            list(ids)
            for ids in dict.fromkeys(encoded)
            if not any(ids != other == ids[: len(other)] for other in encoded)
        ]

    def _biases(self, name: str, value: Any) -> list[list[Any]]:
        pairs = value.items() if isinstance(value, Mapping) else _listed(name, value)
        biases: list[list[Any]] = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise PlaygroundError(f"{name} has {pair!r}; it must be a word and a number")
            words, bias = pair
            if isinstance(bias, bool) or not isinstance(bias, int | float):
                raise PlaygroundError(f"{name} has {bias!r} for {words!r}; it must be a number")
            biases += [[ids, float(bias)] for ids in self._encoded(name, words)]
        return biases

    def _tokens(self, name: str, value: Any) -> list[int]:
        items = [value] if isinstance(value, str | int) else _listed(name, value)
        return list(dict.fromkeys(id for item in items for id in self._alternatives(name, item)))

    def _one_token(self, name: str, value: Any) -> int:
        return self._alternatives(name, value)[0]

    def _alternatives(self, name: str, item: Any) -> list[int]:
        """The single tokens for an id or a word."""
        if not isinstance(item, str):
            return self.ids(name, [item])
        if item in (vocabulary := self._tokenizer.get_vocab()):
            return [vocabulary[item]]
        single = [ids[0] for ids in self.encodings(item) if len(ids) == 1]
        if not single:
            raise PlaygroundError(f"{name} has {item!r}; it must be a single token")
        return single

    def _encoded(self, name: str, item: Any) -> list[list[int]]:
        """The tokens of a word, once for each encoding, or the given tokens."""
        if not isinstance(item, str):
            return [self.ids(name, item)]
        if not item.strip():
            raise PlaygroundError(f"{name} has {item!r}; it must be a word")
        return self.encodings(item)

    def ids(self, name: str, value: Any) -> list[int]:
        """A list of token ids, checked against the vocabulary."""
        ids = _listed(name, value)
        for id in ids:
            if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < self._vocabulary:
                raise PlaygroundError(
                    f"{name} has {id!r}; token ids are whole numbers from 0 to"
                    f" {self._vocabulary - 1}"
                )
        if not ids:
            raise PlaygroundError(f"{name} has an empty list; it must contain token ids")
        return ids


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise PlaygroundError(f"{name} is {value!r}; it must be a list")
    return list(value)
