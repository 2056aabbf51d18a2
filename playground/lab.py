"""The Python API: `Playground` compares decoding strategies on one model.

A call goes one way: the request parser checks it, this module prepares a run for each strategy, and
the engine's loop runs them. Needs torch, transformers and the standard library only.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
from engine.scoring import scoring
from engine.settings import Limits
from engine.strategy import Decoding, Strategy
from engine.trace import Trace, Update
from engine.trace.recorder import Recorder, TraceHeader
from engine.trace.token_text import TokenDecoder
from engine.trie.backends import Backends, BackendStatus
from engine.trie.node import Source
from playground import generation_configs
from playground.draft_models import DraftModels
from playground.requests import (
    Comparison,
    Request,
    RequestParser,
    StrategyChoice,
    TextOrTokens,
    TokenizedPrompt,
)
from playground.stopping import Stop


class Playground:
    """Compares decoding strategies on one model.

    ``model`` is the name of an embedded model, a folder, a Hub id, or a loaded `Model`. ``drafts``
    are the names of draft models that runs may use; None allows any. ``heads`` are draft heads for
    the model; None uses those trained for it, if there are any. Set ``allow_custom`` to False on a
    public server: otherwise a run may execute code that its settings name.
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
        self.token_decoder = TokenDecoder(self.model.tokenizer)
        self._backends = Backends(self.model.module, self.limits.positions, packed=True)
        self._drafts = DraftModels(self.model, self._backends, self.limits.positions, drafts, heads)
        self._parser = RequestParser(self.model, self.limits, allow_custom)
        self._calls = _CallCounter()

    def compare(
        self,
        prompt: str | Chat,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        **shared: Any,
    ) -> list[Trace]:
        """Run strategies side by side on one prompt; return their traces in the same order."""
        return traces_of(self.stream(prompt, choices, prefix=prefix, **shared))

    def stream(
        self,
        prompt: str | Chat,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        stop: Stop | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """Like `compare`, but yield the new steps of each run, tick by tick.

        ``prefix`` is a text, or its token ids, that already follows the prompt: the runs continue
        from there. Setting ``stop`` ends every run within one tick, with the trace so far; a
        `RunControl` can also pause them. Closing the iterator ends the runs without a trace.
        Invalid input raises before anything runs.
        """
        comparison = self.parse(prompt, choices, prefix=prefix, **shared)
        self._backends.refresh()
        return loop.stream(self._runs(comparison), _is_set(stop), self._seconds)

    def stream_each(
        self,
        runs: Sequence[tuple[str | Chat, StrategyChoice]],
        *,
        stop: Stop | None = None,
        **shared: Any,
    ) -> Iterator[Update]:
        """Like `stream` with a prompt for each run, all in one forward pass per tick."""
        if len(runs) > self.limits.rows:
            raise PlaygroundError(
                f"{len(runs)} prompts; at most {self.limits.rows} run side by side"
            )
        comparisons = [self.parse(prompt, [choice], **shared) for prompt, choice in runs]
        self._backends.refresh()
        prepared = [run for comparison in comparisons for run in self._runs(comparison)]
        return loop.stream(prepared, _is_set(stop), self._seconds)

    def score(
        self,
        prompt: str | Chat,
        text: TextOrTokens,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        **shared: Any,
    ) -> list[Trace]:
        """Score an existing text, or its token ids, under each strategy's settings.

        Every token becomes a step with its probability under the model and after the strategy's
        processors, DoLa's contrast included. Contrastive search's similarity penalty, the
        competition of beams and drafts do not apply to a single given text and have no effect.
        """
        return traces_of(self._scored(prompt, text, choices, prefix=prefix, **shared))

    def _scored(
        self,
        prompt: str | Chat,
        text: TextOrTokens,
        choices: Sequence[StrategyChoice],
        **shared: Any,
    ) -> Iterator[Update]:
        comparison = self.parse(prompt, choices, **shared)
        tokens = self._parser.tokens_to_score(text)
        self._backends.refresh()
        source, _ = self._source(comparison.prompt, len(tokens))
        runs = [self._scoring(source, request, tokens) for request in comparison.requests]
        return loop.stream(runs, lambda: False, self._seconds)

    def parse(
        self,
        prompt: str | Chat,
        choices: Sequence[StrategyChoice],
        *,
        prefix: TextOrTokens = (),
        **shared: Any,
    ) -> Comparison:
        """Check what `compare` would run, without running it."""
        return self._parser.comparison(prompt, choices, prefix, shared)

    @property
    def backend_status(self) -> BackendStatus:
        """How the model is run: on the trie or the plain backend, and with which accelerations."""
        return self._backends.status

    def offered(self) -> dict[str, Strategy]:
        """The strategies that may be run here, by id."""
        return self._parser.offered()

    def defaults(self, strategy: str) -> dict[str, Any]:
        """The default values of a strategy's own settings on this model."""
        found = strategies.find(strategy)
        own = self.model.module.generation_config
        library = own._get_default_generation_params()
        values = {}
        for name, setting in found.own_settings.items():
            inherited = getattr(own, name, None)
            inherited = library.get(name) if inherited is None else inherited
            values[name] = inherited if setting.default is None else setting.default
        return {**values, **self._parser.draft_defaults(found)}

    def configuration(self, choice: StrategyChoice, **shared: Any) -> GenerationConfig:
        """The generation config of a run: the model's own, changed by the run's settings."""
        request = self._parser.request(choice, shared)
        own = self.model.module.generation_config
        return generation_configs.configured(own, request.strategy, request.settings)

    @property
    def _seconds(self) -> float:
        return self.limits.seconds or math.inf

    def _source(self, prompt: TokenizedPrompt, new: int) -> tuple[Source, int]:
        """The model with the prompt it reads, and the greatest length of a text."""
        self._parser.check_length(prompt, new)
        length = len(prompt.ids) + len(prompt.prefix) + new
        evaluator = self._backends.whole(length)
        known = evaluator.prompt(prompt.ids, prompt.prefix, lambda: read(self.model, *prompt))
        return Source(self.model, evaluator, known), length

    def _runs(self, comparison: Comparison) -> list[tuple[Run, Callable[[Run], Decoding]]]:
        longest = max(request.settings["max_new_tokens"] for request in comparison.requests)
        source, length = self._source(comparison.prompt, longest)
        return [self._run(source, request, length) for request in comparison.requests]

    def _run(
        self, source: Source, request: Request, length: int
    ) -> tuple[Run, Callable[[Run], Decoding]]:
        if request.draft is not None:
            name = self._drafts.add(request.draft)
            request = replace(request, settings={**request.settings, "assistant_model": name})
        found, prepared, params = self._prepared(source, request)
        drafts = None
        if found.drafts:
            _refuse_memory(prepared)
            drafts = self._drafts.source(vars(params), source, length)
        run = self._started(source, request, prepared, params, drafts)
        if found.heads:
            run.heads = self._drafts.heads(found.id)
        return run, lambda run: found.decode(run, params)

    def _scoring(
        self, source: Source, request: Request, tokens: Sequence[int]
    ) -> tuple[Run, Callable[[Run], Decoding]]:
        found, prepared, params = self._prepared(source, request)
        if found.runs_user_code:
            raise PlaygroundError(
                f"{found.id} cannot score a text: its own code decides while it generates"
            )
        adjust = partial(found.adjust, params=params) if found.adjust else None
        beams = "num_beams" in found.own_settings
        run = self._started(source, request, prepared, params)
        return run, scoring(tokens, log_probs=beams, adjust=adjust)

    def _prepared(self, source: Source, request: Request) -> tuple[Strategy, Prepared, Any]:
        """A strategy, its processors and criteria from transformers, and its own settings."""
        found, settings = request.strategy, request.settings
        config = self.model.module.generation_config
        own = {name for name in found.own_settings if not hasattr(config, name)}
        theirs = {name: value for name, value in settings.items() if name not in own}
        prepared = prepare(self.model, source.prompt, {**theirs, **found.fixed}, found.settings)
        self._calls.watch(prepared)
        return found, prepared, _params(found, prepared, settings)

    def _started(
        self,
        source: Source,
        request: Request,
        prepared: Prepared,
        params: Any,
        drafts: Source | None = None,
    ) -> Run:
        prompt = source.prompt
        header = TraceHeader(
            strategy=request.strategy.id,
            settings=_json_value({**prepared.inherited, **request.settings, **vars(params)}),
            seed=request.seed,
            model=self.model.name,
            prompt=prompt.text,
            prompt_tokens=tuple(self.token_decoder.token(id) for id in prompt.ids),
            prefix=tuple(self.token_decoder.token(id) for id in prompt.prefix),
        )
        recorder = Recorder(header, self.token_decoder, at_start=self.model.is_encoder_decoder)
        calls = self._calls.count
        return Run(source, prepared, recorder, self.token_decoder, request.seed, calls, drafts)


class _CallCounter:
    """Counts the model calls that processors make: guidance runs the model a second time."""

    def __init__(self) -> None:
        self._local = threading.local()

    def count(self) -> int:
        """The calls on this thread so far."""
        return getattr(self._local, "calls", 0)

    def watch(self, prepared: Prepared) -> None:
        """Count the calls of a run's own processors."""
        for processor in prepared.processors:
            if isinstance(processor, UnbatchedClassifierFreeGuidanceLogitsProcessor):
                processor.model = partial(self._call, processor.model)

    def _call(self, model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._local.calls = self.count() + 1
        return model(*args, **kwargs)


def _is_set(stop: Stop | None) -> Callable[[], bool]:
    return stop.is_set if stop is not None else lambda: False


def traces_of(updates: Iterable[Update]) -> list[Trace]:
    """The traces of a stream, in the order of its runs."""
    ended = {update.run: update.trace for update in updates if update.trace}
    return [ended[run] for run in sorted(ended)]


def _refuse_memory(prepared: Prepared) -> None:
    """Refuse processors with state: rejected draft tokens would stay in it."""
    stateful = {
        UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
        SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
    }
    for processor in prepared.processors:
        if name := stateful.get(type(processor)):
            raise PlaygroundError(
                f"{name}: {type(processor).__name__} keeps every token it has seen, rejected drafts"
                " included; it cannot be used with drafts"
            )


def _params(found: Strategy, prepared: Prepared, settings: Mapping[str, Any]) -> Any:
    """The strategy's own settings, with transformers' values where its config has such a field."""
    names = found.own_settings
    return found.params(
        **{name: getattr(prepared.config, name, settings.get(name)) for name in names}
    )


def _json_value(value: Any) -> Any:
    """A setting as the trace records it: JSON values unchanged, other objects by name."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if hasattr(value, "to_dict"):
        return _json_value(value.to_dict())
    return getattr(value, "__name__", type(value).__name__)
