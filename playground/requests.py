"""Parses requests: a prompt, an optional prefix, and strategies with settings.

Everything is checked here, before a model is called. Invalid input raises `PlaygroundError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from transformers import GenerationConfig

import strategies
from engine.errors import PlaygroundError
from engine.models import trained
from engine.models.model import Model
from engine.prompt import Chat, tokens_of
from engine.settings import Limits, check
from engine.strategy import Strategy
from engine.token_settings import TokenSettings
from engine.trace.token_text import TokenDecoder
from playground import generation_configs

# A strategy's id, an id with settings, or a config from which transformers would pick a strategy.
StrategyChoice = str | tuple[str, Mapping[str, Any]] | GenerationConfig

TextOrTokens = str | Sequence[int]


@dataclass(frozen=True)
class Request:
    """One strategy with its checked settings. ``draft`` is the draft model, if given as an object;
    the settings then hold its name."""

    strategy: Strategy
    settings: dict[str, Any]
    seed: int
    draft: Model | None = None


class TokenizedPrompt(NamedTuple):
    """A prompt as text and tokens, and the tokens that already follow it."""

    text: str
    ids: list[int]
    prefix: list[int]


class Comparison(NamedTuple):
    """A parsed request: the prompt, and the strategies to run on it."""

    prompt: TokenizedPrompt
    requests: list[Request]


class RequestParser:
    """Parses requests to one model, within its limits."""

    def __init__(self, model: Model, limits: Limits, allow_custom: bool) -> None:
        self._model = model
        self._limits = limits
        self._allow_custom = allow_custom

    def offered(self) -> dict[str, Strategy]:
        """The strategies that may be requested, by id."""
        known = strategies.registered()
        return {
            id: found
            for id, found in known.items()
            if self._allow_custom or not found.runs_user_code
        }

    def comparison(
        self,
        prompt: str | Chat,
        choices: Sequence[StrategyChoice],
        prefix: TextOrTokens,
        shared: Mapping[str, Any],
    ) -> Comparison:
        """Parse a whole request; ``shared`` are settings of every strategy."""
        tokenized = self._tokenize(prompt, prefix)
        if not choices:
            known = ", ".join(strategies.registered())
            raise PlaygroundError(f"there is no strategy to run; choose some of {known}")
        if len(choices) > self._limits.strategies:
            raise PlaygroundError(
                f"{len(choices)} strategies; at most {self._limits.strategies} run side by side"
            )
        lengths = len(tokenized.ids), len(tokenized.prefix)
        requests = [self.request(choice, shared, *lengths) for choice in choices]
        return Comparison(tokenized, [self._with_drafter(request) for request in requests])

    def request(
        self,
        choice: StrategyChoice,
        shared: Mapping[str, Any],
        prompt_length: int = 0,
        prefix_length: int = 0,
    ) -> Request:
        """Parse one strategy and its settings; words become token ids.

        The lengths are needed for a config with ``max_length``, which counts all tokens.
        """
        if isinstance(choice, GenerationConfig):
            started = (1 if self._model.is_encoder_decoder else prompt_length) + prefix_length
            id, config = generation_configs.choice(
                choice, self._model.module.generation_config, started
            )
            choice = (id, {**config, **shared})  # as in `generate`, arguments override a config
        try:
            id, own = (choice, {}) if isinstance(choice, str) else choice
            given = {**shared, **own}
        except (TypeError, ValueError) as error:
            raise PlaygroundError(
                f"a strategy is given by its name, or as (name, settings), not as {choice!r}"
            ) from error
        found = strategies.find(id)
        if found.runs_user_code and not self._allow_custom:
            raise PlaygroundError(f"{found.id} runs your own code, which is not allowed here")
        if found.decoder_only and self._model.is_encoder_decoder:
            raise PlaygroundError(
                f"{found.id} needs a decoder-only model; {self._model.name} has an encoder"
            )
        draft = given.get("assistant_model")
        if isinstance(draft, Model):
            given["assistant_model"] = draft.name
        given = check(_without_fixed(given, found), found.settings, self._limits, found.id)
        defaults = {name: setting.default for name, setting in found.settings.items()}
        defaults = {name: value for name, value in defaults.items() if value is not None}
        settings = self._token_settings.resolve({**defaults, **given})
        seed = settings.pop("seed")
        return Request(found, settings, seed, draft if isinstance(draft, Model) else None)

    def tokens_to_score(self, text: TextOrTokens) -> list[int]:
        """The tokens of a text to score."""
        if isinstance(text, str) and len(text) > (most := self._limits.prompt_characters):
            raise PlaygroundError(
                f"the text to score has {len(text)} characters; at most {most} are read"
            )
        tokens = self._tokens("text", text)
        if not tokens:
            raise PlaygroundError("the text to score is empty; give at least one token")
        self._check_count("text", tokens)
        return tokens

    def check_length(self, prompt: TokenizedPrompt, new: int) -> None:
        """Raise if the prompt, the prefix and the new tokens exceed the model's context."""
        context, ids, prefix = self._model.context_length, len(prompt.ids), len(prompt.prefix)
        # An encoder and a decoder have positions of their own.
        separate = self._model.is_encoder_decoder
        length = max(ids, prefix + new) if separate else ids + prefix + new
        if context is not None and length > context:
            before = f"{ids} tokens of prompt" + (f", {prefix} of prefix" if prefix else "")
            raise PlaygroundError(
                f"{before} and {new} new ones are more than the {context} that"
                f" {self._model.name} can attend to"
            )

    def draft_defaults(self, strategy: Strategy) -> dict[str, Any]:
        """The default drafter of a strategy that drafts: the draft model or the early exit that
        was trained for this model, with its settings; empty if there is none."""
        if "assistant_early_exit" in strategy.own_settings:
            return self._exit_defaults
        draft = strategy.own_settings.get("assistant_model")
        return self._draft_defaults if draft is not None and draft.default is None else {}

    @cached_property
    def _draft_defaults(self) -> dict[str, Any]:
        drafts = trained.drafts_for(trained.target_of(self._model) or "")
        return {"assistant_model": drafts[0], **trained.DRAFT_DEFAULTS} if drafts else {}

    @cached_property
    def _exit_defaults(self) -> dict[str, Any]:
        layers = trained.exit_layers(self._model)
        return {"assistant_early_exit": layers[0], **trained.EXIT_DEFAULTS} if layers else {}

    def _with_drafter(self, request: Request) -> Request:
        defaults = self.draft_defaults(request.strategy)
        return replace(request, settings={**defaults, **request.settings})

    def _tokenize(self, prompt: str | Chat, prefix: TextOrTokens) -> TokenizedPrompt:
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
        if len(ids) > (most := self._limits.prompt_tokens):
            raise PlaygroundError(f"the prompt has {len(ids)} tokens; at most {most} are read")
        return TokenizedPrompt(text, ids, self._tokens("prefix", prefix))

    def _tokens(self, name: str, text: TextOrTokens) -> list[int]:
        """The tokens of a text, or the given token ids once they are checked."""
        if isinstance(text, str):
            if self._model.is_encoder_decoder:  # the decoder's text starts a sequence of its own
                return list(self._model.tokenizer(text, add_special_tokens=False).input_ids)
            return TokenDecoder(self._model.tokenizer).ids(text)
        if not isinstance(text, Sequence) or isinstance(text, bytes):
            raise PlaygroundError(f"{name} is a text or a list of token ids, not {text!r}")
        ids = list(text)
        self._check_count(name, ids)
        return self._token_settings.ids(name, ids) if ids else []

    def _check_count(self, name: str, tokens: Sequence[object]) -> None:
        if len(tokens) > (most := self._limits.max_new_tokens):
            raise PlaygroundError(f"{name} has {len(tokens)} tokens; at most {most} are read")

    @cached_property
    def _token_settings(self) -> TokenSettings:
        return TokenSettings(
            self._model.tokenizer, self._model.module.config.get_text_config().vocab_size
        )


def _without_fixed(given: Mapping[str, Any], strategy: Strategy) -> dict[str, Any]:
    """The settings without those the strategy fixes, which may be given only with that value."""
    for name, value in strategy.fixed.items():
        if given.get(name, value) != value:
            raise PlaygroundError(f"{name} is {given[name]!r}; {strategy.id} always has {value!r}")
    return {name: value for name, value in given.items() if name not in strategy.fixed}
