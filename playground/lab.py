"""The Python API: a model, and strategies compared on it.

Knows how words, settings and strategies become runs. Refuses to know the page and the figures, so
that it works where there is only torch, transformers and the standard library.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

import strategies
from engine import loop, models
from engine.errors import PlaygroundError
from engine.model import Model
from engine.node import Source
from engine.prepare import Prepared, prepare
from engine.prompt import Chat, read, tokens_of
from engine.readers import Readers
from engine.record import Heading, Recorder
from engine.run import Run
from engine.settings import Limits, check
from engine.strategy import Decoding, Strategy
from engine.tokens import Speller
from engine.trace import Trace, Update
from engine.words import Words
from playground import configs
from playground.drafts import Drafts

# A strategy, one with settings of its own, or a config that says which one.
Choice = str | tuple[str, Mapping[str, Any]] | GenerationConfig


@dataclasses.dataclass(frozen=True)
class Request:
    """One strategy with all its settings checked, the seed apart."""

    strategy: Strategy
    settings: dict[str, Any]
    seed: int


class Playground:
    """Compares decoding strategies on one model.

    ``model`` is an embedded model's name, a folder, a Hub id, or a loaded `Model`. ``drafts`` are
    the names that runs may give for a draft model; without them, any. Whoever lets strangers ask
    sets ``allow_custom`` to False: else a run may name code to be run.
    """

    def __init__(
        self,
        model: str | Model = models.DEFAULT,
        *,
        limits: Limits | None = None,
        drafts: Collection[str] | None = None,
        allow_custom: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self.model = models.load(model) if isinstance(model, str) else model
        self.speller = Speller(self.model.tokenizer)
        self._readers = Readers(self.model.module, self.limits.positions)
        self._drafts = Drafts(self.model, self._readers, self.limits.positions, drafts)
        self._allow_custom = allow_custom
        self._calls = _CallCounter(self.model.module)

    def compare(self, prompt: str | Chat, choices: Sequence[Choice], **shared: Any) -> list[Trace]:
        """Run strategies together on one prompt; gives their traces in the same order."""
        ended = {u.run: u.trace for u in self.stream(prompt, choices, **shared) if u.trace}
        return [ended[run] for run in range(len(choices))]

    def stream(
        self,
        prompt: str | Chat,
        choices: Sequence[Choice],
        *,
        stop: threading.Event | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """The same while it happens: what is new in each run, tick by tick.

        Setting ``stop`` ends every run within one tick, with the trace so far; closing the
        iterator does too, without a word. Bad input raises before anything runs.
        """
        text, ids = self._tokens(prompt)
        requests = self._requests(choices, shared, len(ids))
        longest = max(request.settings["max_new_tokens"] for request in requests)
        self._check_length(len(ids), longest)
        length = len(ids) + longest
        reader = self._readers.whole(length)
        known = reader.prompt(ids, lambda: read(self.model, text, ids))
        source = Source(self.model, reader, known)
        runs = [self._run(source, request, length) for request in requests]
        return loop.stream(runs, stop.is_set if stop else lambda: False)

    def offered(self) -> dict[str, Strategy]:
        """The strategies that may be run here, by id."""
        known = strategies.registered()
        return {id: found for id, found in known.items() if self._allow_custom or not found.foreign}

    def defaults(self, strategy: str) -> dict[str, Any]:
        """The value each of a strategy's own settings has when it is not given."""
        found = strategies.find(strategy)
        own = self.model.module.generation_config
        usual = own._get_default_generation_params()
        values = {}
        for name, setting in found.own_settings.items():
            inherited = getattr(own, name, None)
            inherited = usual.get(name) if inherited is None else inherited
            values[name] = inherited if setting.default is None else setting.default
        return values

    def configuration(self, choice: Choice, **shared: Any) -> GenerationConfig:
        """The generation config a run would have: the model's own, changed by its settings."""
        request = self._request(choice, shared, 0)
        own = self.model.module.generation_config
        return configs.configured(own, request.strategy, request.settings)

    def _requests(
        self, choices: Sequence[Choice], shared: Mapping[str, Any], started: int
    ) -> list[Request]:
        if not choices:
            known = ", ".join(strategies.registered())
            raise PlaygroundError(f"there is no strategy to run; choose some of {known}")
        if len(choices) > self.limits.strategies:
            raise PlaygroundError(
                f"{len(choices)} strategies; at most {self.limits.strategies} run side by side"
            )
        return [self._request(choice, shared, started) for choice in choices]

    def _request(self, choice: Choice, shared: Mapping[str, Any], started: int) -> Request:
        """Check one strategy's settings and let words become tokens."""
        if isinstance(choice, GenerationConfig):
            start = 1 if self.model.is_encoder_decoder else started
            id, asked = configs.choice(choice, self.model.module.generation_config, start)
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
        if found.decoder_only and self.model.is_encoder_decoder:
            raise PlaygroundError(
                f"{found.id} needs a decoder-only model; {self.model.name} is none"
            )
        if isinstance(draft := given.get("assistant_model"), Model):
            given["assistant_model"] = self._drafts.adopt(draft)
        given = check(_without_fixed(given, found), found.settings, self.limits, found.id)
        declared = {name: setting.default for name, setting in found.settings.items()}
        declared = {name: value for name, value in declared.items() if value is not None}
        settings = self._words.resolve({**declared, **given})
        return Request(found, settings, seed=settings.pop("seed"))

    def _run(
        self, source: Source, request: Request, length: int
    ) -> tuple[Run, Callable[[Run], Decoding]]:
        found, settings, prompt = request.strategy, request.settings, source.prompt
        config = self.model.module.generation_config
        own = {name for name in found.own_settings if not hasattr(config, name)}
        theirs = {name: value for name, value in settings.items() if name not in own}
        prepared = prepare(self.model, prompt, {**theirs, **found.fixed})
        params = _params(found, prepared, settings)
        heading = Heading(
            strategy=found.id,
            settings=_told({**settings, **vars(params)}),
            seed=request.seed,
            model=self.model.name,
            prompt=prompt.text,
            prompt_tokens=tuple(self.speller.token(id) for id in prompt.ids),
        )
        recorder = Recorder(heading, self.speller, fresh=self.model.is_encoder_decoder)
        drafts = None
        if found.drafts:
            _refuse_memory(prepared)
            drafts = self._drafts.source(vars(params), source, length)
        run = Run(source, prepared, recorder, self.speller, request.seed, self._calls.count, drafts)
        return run, lambda run: found.decode(run, params)

    def _tokens(self, prompt: str | Chat) -> tuple[str, list[int]]:
        characters = (
            len(prompt) if isinstance(prompt, str) else sum(len(str(message)) for message in prompt)
        )
        if characters > self.limits.prompt_characters:
            raise PlaygroundError(
                f"the prompt has {characters} characters; at most {self.limits.prompt_characters}"
                " are read"
            )
        return tokens_of(self.model, prompt)

    def _check_length(self, prompt: int, new: int) -> None:
        context = self.model.context_length
        # An encoder-decoder reads and writes in two places, each as long as its context.
        length = max(prompt, new) if self.model.is_encoder_decoder else prompt + new
        if context is not None and length > context:
            raise PlaygroundError(
                f"{prompt} tokens of prompt and {new} new ones are more than the {context} that"
                f" {self.model.name} can attend to"
            )

    @cached_property
    def _words(self) -> Words:
        return Words(self.model.tokenizer, self.model.module.config.get_text_config().vocab_size)


class _CallCounter:
    """Counts the model calls of each thread: a processor's own calls belong to its run."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._local = threading.local()
        module.register_forward_pre_hook(self._called)

    def count(self) -> int:
        """Calls made on this thread so far."""
        return getattr(self._local, "calls", 0)

    def _called(self, *_: Any) -> None:
        self._local.calls = self.count() + 1


def _refuse_memory(prepared: Prepared) -> None:
    """Refuse processors that remember what they saw: a draft thrown away would stay with them."""
    remembering = {
        UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
        SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
    }
    for processor in prepared.processors:
        if name := remembering.get(type(processor)):
            raise PlaygroundError(
                f"{name}: {type(processor).__name__} remembers every token it saw, also of drafts"
                " that are thrown away; it cannot be used with them"
            )


def _without_fixed(given: Mapping[str, Any], found: Strategy) -> dict[str, Any]:
    """The settings less those that make the strategy what it is, which may only be repeated."""
    for name, value in found.fixed.items():
        if given.get(name, value) != value:
            raise PlaygroundError(f"{name} is {given[name]!r}; {found.id} always has {value!r}")
    return {name: value for name, value in given.items() if name not in found.fixed}


def _params(found: Strategy, prepared: Prepared, settings: Mapping[str, Any]) -> Any:
    """The strategy's settings as they came out of transformers' preparation."""
    names = found.own_settings
    return found.params(
        **{name: getattr(prepared.config, name, settings.get(name)) for name in names}
    )


def _told(value: Any) -> Any:
    """A setting as the trace tells it: JSON values as they are, objects by what they are called."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _told(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_told(item) for item in value]
    if hasattr(value, "to_dict"):
        return _told(value.to_dict())
    return getattr(value, "__name__", type(value).__name__)
