"""The Python API: a model, and strategies compared on it.

Knows how checked settings and strategies become runs. Refuses to know the page and the figures, so
that it works where there is only torch, transformers and the standard library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

import strategies
from engine import loop
from engine.drafting.heads import Heads
from engine.errors import PlaygroundError
from engine.models import loading
from engine.models.model import Model
from engine.prepare import Prepared, prepare
from engine.prompt import Chat, read
from engine.run import Run
from engine.run_control import RunControl
from engine.scoring import scoring
from engine.settings import Limits
from engine.strategy import Decoding, Strategy
from engine.trace import Trace, Update
from engine.trace.recorder import Heading, Recorder
from engine.trace.token_text import Speller
from engine.trie.backends import Backends, BackendStatus
from engine.trie.node import Source
from playground import generation_configs
from playground.draft_models import DraftModels
from playground.requests import Beginning, Choice, Request, RequestParser, Text

__all__ = ["Choice", "Playground", "Request"]


class Playground:
    """Compares decoding strategies on one model.

    ``model`` is an embedded model's name, a folder, a Hub id, or a loaded `Model`. ``drafts`` are
    the names that runs may give for a draft model; without them, any. ``heads`` are draft heads for
    the model; without them, those that come with it, if any do. Whoever lets strangers ask sets
    ``allow_custom`` to False: else a run may name code to be run.
    """

    def __init__(
        self,
        model: str | Model = loading.DEFAULT,
        *,
        limits: Limits | None = None,
        drafts: Collection[str] | None = None,
        heads: Heads | None = None,
        allow_custom: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self.model = loading.load(model) if isinstance(model, str) else model
        self.speller = Speller(self.model.tokenizer)
        self._backends = Backends(self.model.module, self.limits.positions)
        self._drafts = DraftModels(self.model, self._backends, self.limits.positions, drafts, heads)
        self._parser = RequestParser(self.model, self.limits, self._drafts, allow_custom)
        self._calls = _CallCounter(self.model.module)

    def compare(
        self, prompt: str | Chat, choices: Sequence[Choice], *, prefix: Text = (), **shared: Any
    ) -> list[Trace]:
        """Run strategies together on one prompt; gives their traces in the same order."""
        return _traces(self.stream(prompt, choices, prefix=prefix, **shared))

    def stream(
        self,
        prompt: str | Chat,
        choices: Sequence[Choice],
        *,
        prefix: Text = (),
        stop: threading.Event | RunControl | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """The same while it happens: what is new in each run, tick by tick.

        ``prefix`` is a text, or tokens, that already stand after the prompt: the runs go on from
        there, as `generate` does from both together. Setting ``stop`` ends every run within one
        tick, with the trace so far, and a `RunControl` can hold them too; closing the iterator ends
        them without a word. Bad input raises before anything runs.
        """
        runs = self._runs(prompt, choices, prefix, shared)
        return loop.stream(runs, stop.is_set if stop is not None else lambda: False)

    def stream_each(
        self,
        asked: Sequence[tuple[str | Chat, Choice]],
        *,
        stop: threading.Event | RunControl | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """The same with a prompt for each run: many texts at once, in one pass a tick."""
        if len(asked) > self.limits.rows:
            raise PlaygroundError(
                f"{len(asked)} prompts; at most {self.limits.rows} are written from side by side"
            )
        runs = [run for prompt, choice in asked for run in self._runs(prompt, [choice], (), shared)]
        return loop.stream(runs, stop.is_set if stop is not None else lambda: False)

    def score(
        self,
        prompt: str | Chat,
        text: Text,
        choices: Sequence[Choice],
        *,
        prefix: Text = (),
        **shared: Any,
    ) -> list[Trace]:
        """What each strategy's settings make of a text that is there, or of its tokens.

        Every token becomes a step, with what the model gave it and what was left of that after the
        strategy's processors, DoLa's contrast included. How contrastive search weighs likeness, how
        beams compete and what drafts propose is no distribution of one text and has no part in it.
        """
        begin = self._parser.beginning(prompt, prefix)
        tokens = self._parser.scored(text)
        requests = self._parser.requests(choices, shared, begin)
        source, _ = self._source(begin, len(tokens))
        runs = [self._scoring(source, request, tokens) for request in requests]
        return _traces(loop.stream(runs, lambda: False))

    @property
    def backend_status(self) -> BackendStatus:
        """How the model is run: on the trie or the plain backend, and with which accelerations."""
        return self._backends.status

    def offered(self) -> dict[str, Strategy]:
        """The strategies that may be run here, by id."""
        return self._parser.offered()

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
        return {**values, **self._parser.usual(found)}

    def configuration(self, choice: Choice, **shared: Any) -> GenerationConfig:
        """The generation config a run would have: the model's own, changed by its settings."""
        request = self._request(choice, shared, 0)
        own = self.model.module.generation_config
        return generation_configs.configured(own, request.strategy, request.settings)

    def _request(self, choice: Choice, shared: Mapping[str, Any], prompt: int) -> Request:
        return self._parser.request(choice, shared, prompt)

    def _source(self, begin: Beginning, new: int) -> tuple[Source, int]:
        """The prompt with the model that reads it, and how long texts get."""
        self._parser.check_length(begin, new)
        length = len(begin.ids) + len(begin.prefix) + new
        evaluator = self._backends.whole(length)
        known = evaluator.prompt(begin.ids, begin.prefix, lambda: read(self.model, *begin))
        return Source(self.model, evaluator, known), length

    def _runs(
        self, prompt: str | Chat, choices: Sequence[Choice], prefix: Text, shared: dict[str, Any]
    ) -> list[tuple[Run, Callable[[Run], Decoding]]]:
        begin = self._parser.beginning(prompt, prefix)
        requests = self._parser.requests(choices, shared, begin)
        longest = max(request.settings["max_new_tokens"] for request in requests)
        source, length = self._source(begin, longest)
        return [self._run(source, request, length) for request in requests]

    def _run(
        self, source: Source, request: Request, length: int
    ) -> tuple[Run, Callable[[Run], Decoding]]:
        found, prepared, params = self._prepared(source, request)
        drafts = None
        if found.drafts:
            _refuse_memory(prepared)
            drafts = self._drafts.source(vars(params), source, length)
        run = self._begun(source, request, prepared, params, drafts)
        if found.heads:
            run.heads = self._drafts.heads(found.id)
        return run, lambda run: found.decode(run, params)

    def _scoring(
        self, source: Source, request: Request, tokens: Sequence[int]
    ) -> tuple[Run, Callable[[Run], Decoding]]:
        found, prepared, params = self._prepared(source, request)
        if found.foreign:
            raise PlaygroundError(
                f"{found.id} cannot score a text: what it makes of one is known when it writes it"
            )
        reshape = partial(found.reshape, params=params) if found.reshape else None
        beams = "num_beams" in found.own_settings
        run = self._begun(source, request, prepared, params)
        return run, scoring(tokens, log_probs=beams, reshape=reshape)

    def _prepared(self, source: Source, request: Request) -> tuple[Strategy, Prepared, Any]:
        """A strategy, what transformers prepares for it, and its own settings after that."""
        found, settings = request.strategy, request.settings
        config = self.model.module.generation_config
        own = {name for name in found.own_settings if not hasattr(config, name)}
        theirs = {name: value for name, value in settings.items() if name not in own}
        prepared = prepare(self.model, source.prompt, {**theirs, **found.fixed})
        return found, prepared, _params(found, prepared, settings)

    def _begun(
        self,
        source: Source,
        request: Request,
        prepared: Prepared,
        params: Any,
        drafts: Source | None = None,
    ) -> Run:
        prompt = source.prompt
        heading = Heading(
            strategy=request.strategy.id,
            settings=_told({**request.settings, **vars(params)}),
            seed=request.seed,
            model=self.model.name,
            prompt=prompt.text,
            prompt_tokens=tuple(self.speller.token(id) for id in prompt.ids),
            prefix=tuple(self.speller.token(id) for id in prompt.prefix),
        )
        recorder = Recorder(heading, self.speller, fresh=self.model.is_encoder_decoder)
        calls = self._calls.count
        return Run(source, prepared, recorder, self.speller, request.seed, calls, drafts)


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


def _traces(updates: Iterable[Update]) -> list[Trace]:
    """The traces of a stream, in the order of its runs."""
    ended = {update.run: update.trace for update in updates if update.trace}
    return [ended[run] for run in sorted(ended)]


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
