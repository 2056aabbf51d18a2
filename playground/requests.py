"""What somebody asks for, checked before anything runs: a prompt, a text after it, strategies.

Knows what this model and whoever runs it allow. Refuses to run anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from transformers import GenerationConfig

import strategies
from engine.errors import PlaygroundError
from engine.models.model import Model
from engine.prompt import Chat, tokens_of
from engine.settings import Limits, check
from engine.strategy import Strategy
from engine.token_settings import TokenSettings
from engine.trace.token_text import Speller
from playground import generation_configs
from playground.draft_models import DraftModels

# A strategy, one with settings of its own, or a config that says which one.
Choice = str | tuple[str, Mapping[str, Any]] | GenerationConfig

# A text, or the tokens it is to be read as.
Text = str | Sequence[int]


@dataclass(frozen=True)
class Request:
    """One strategy with all its settings checked, the seed apart."""

    strategy: Strategy
    settings: dict[str, Any]
    seed: int


class Beginning(NamedTuple):
    """What runs go on from: a prompt, and what already stands after it."""

    text: str
    ids: list[int]
    prefix: list[int]


class RequestParser:
    """Checks what is asked of one model."""

    def __init__(
        self, model: Model, limits: Limits, drafts: DraftModels, allow_custom: bool
    ) -> None:
        self._model = model
        self._limits = limits
        self._drafts = drafts
        self._allow_custom = allow_custom

    def offered(self) -> dict[str, Strategy]:
        """The strategies that may be asked for, by id."""
        known = strategies.registered()
        return {id: found for id, found in known.items() if self._allow_custom or not found.foreign}

    def beginning(self, prompt: str | Chat, prefix: Text) -> Beginning:
        """A prompt and what stands after it, in tokens."""
        after = len(prefix) if isinstance(prefix, str) else 0
        characters = after + (
            len(prompt) if isinstance(prompt, str) else sum(len(str(message)) for message in prompt)
        )
        if characters > self._limits.prompt_characters:
            what = "the prompt and the prefix have" if after else "the prompt has"
            raise PlaygroundError(
                f"{what} {characters} characters; at most {self._limits.prompt_characters} are read"
            )
        text, ids = tokens_of(self._model, prompt)
        return Beginning(text, ids, self._tokens("prefix", prefix))

    def scored(self, text: Text) -> list[int]:
        """The tokens of a text to be scored."""
        if isinstance(text, str) and len(text) > (most := self._limits.prompt_characters):
            raise PlaygroundError(
                f"the text to score has {len(text)} characters; at most {most} are read"
            )
        tokens = self._tokens("text", text)
        if not tokens:
            raise PlaygroundError("the text to score is empty; there is no token to tell of")
        self._check_count("text", tokens)
        return tokens

    def requests(
        self, choices: Sequence[Choice], shared: Mapping[str, Any], begin: Beginning
    ) -> list[Request]:
        """The strategies to run, each with its settings."""
        if not choices:
            known = ", ".join(strategies.registered())
            raise PlaygroundError(f"there is no strategy to run; choose some of {known}")
        if len(choices) > self._limits.strategies:
            raise PlaygroundError(
                f"{len(choices)} strategies; at most {self._limits.strategies} run side by side"
            )
        lengths = (len(begin.ids), len(begin.prefix))
        return [self._filled(self.request(choice, shared, *lengths)) for choice in choices]

    def usual(self, strategy: Strategy) -> dict[str, Any]:
        """What a strategy is told here where nobody says: who drafts for it, if that is open."""
        if "assistant_early_exit" in strategy.own_settings:
            return self._drafts.usual_exit
        draft = strategy.own_settings.get("assistant_model")
        return self._drafts.usual if draft is not None and draft.default is None else {}

    def _filled(self, request: Request) -> Request:
        usual = self.usual(request.strategy)
        return replace(request, settings={**usual, **request.settings})

    def request(
        self, choice: Choice, shared: Mapping[str, Any], prompt: int, prefix: int = 0
    ) -> Request:
        """Check one strategy's settings and let words become tokens; a config may count the tokens
        of the prompt and of the prefix."""
        if isinstance(choice, GenerationConfig):
            started = (1 if self._model.is_encoder_decoder else prompt) + prefix
            id, asked = generation_configs.choice(
                choice, self._model.module.generation_config, started
            )
            choice = (id, {**asked, **shared})  # as in `generate`, arguments overrule a config
        try:
            id, own = (choice, {}) if isinstance(choice, str) else choice
            given = {**shared, **own}
        except (TypeError, ValueError) as error:
            raise PlaygroundError(
                f"a strategy is given by its name, or as (name, settings), not as {choice!r}"
            ) from error
        found = strategies.find(id)
        if found.foreign and not self._allow_custom:
            raise PlaygroundError(f"{found.id} runs code of your own, which is not allowed here")
        if found.decoder_only and self._model.is_encoder_decoder:
            raise PlaygroundError(
                f"{found.id} needs a decoder-only model; {self._model.name} is none"
            )
        if isinstance(draft := given.get("assistant_model"), Model):
            given["assistant_model"] = self._drafts.adopt(draft)
        given = check(_without_fixed(given, found), found.settings, self._limits, found.id)
        declared = {name: setting.default for name, setting in found.settings.items()}
        declared = {name: value for name, value in declared.items() if value is not None}
        settings = self._words.resolve({**declared, **given})
        return Request(found, settings, seed=settings.pop("seed"))

    def check_length(self, begin: Beginning, new: int) -> None:
        """Refuse what is more than the model can attend to."""
        context, prompt, prefix = self._model.context_length, len(begin.ids), len(begin.prefix)
        # An encoder-decoder reads and writes in two places, each as long as its context.
        apart = self._model.is_encoder_decoder
        length = max(prompt, prefix + new) if apart else prompt + prefix + new
        if context is not None and length > context:
            stands = f"{prompt} tokens of prompt" + (f", {prefix} of prefix" if prefix else "")
            raise PlaygroundError(
                f"{stands} and {new} new ones are more than the {context} that"
                f" {self._model.name} can attend to"
            )

    def _tokens(self, name: str, text: Text) -> list[int]:
        """A text in tokens, or the tokens given in its place, if the model has them."""
        if isinstance(text, str):
            if self._model.is_encoder_decoder:  # a decoder's text begins anew
                return list(self._model.tokenizer(text, add_special_tokens=False).input_ids)
            return Speller(self._model.tokenizer).ids(text)
        if not isinstance(text, Sequence) or isinstance(text, bytes):
            raise PlaygroundError(f"{name} is a text or a list of token ids, not {text!r}")
        ids = list(text)
        self._check_count(name, ids)
        return self._words.ids(name, ids) if ids else []

    def _check_count(self, name: str, tokens: Sequence[object]) -> None:
        if len(tokens) > (most := self._limits.max_new_tokens):
            raise PlaygroundError(f"{name} has {len(tokens)} tokens; at most {most} are read")

    @cached_property
    def _words(self) -> TokenSettings:
        return TokenSettings(
            self._model.tokenizer, self._model.module.config.get_text_config().vocab_size
        )


def _without_fixed(given: Mapping[str, Any], found: Strategy) -> dict[str, Any]:
    """The settings less those that make the strategy what it is, which may only be repeated."""
    for name, value in found.fixed.items():
        if given.get(name, value) != value:
            raise PlaygroundError(f"{name} is {given[name]!r}; {found.id} always has {value!r}")
    return {name: value for name, value in given.items() if name not in found.fixed}
