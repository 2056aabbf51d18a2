"""Runs custom decoding code and captures its calls of the model and of the logits processors.

The code runs on its own thread and uses the model as it likes. Forward hooks capture the model's
logits, and a wrapper around the processors captures their scores. Each capture belongs to a text
(the tokens so far), as far as that is known. What was not captured is None in the trace.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    WatermarkLogitsProcessor,
)

from engine.models.model import Model
from engine.trace.distributions import Observation, Stage, observe, processor_name, without_model
from engine.trace.recorder import Recorder
from engine.trace.token_text import TokenDecoder
from engine.trie.backend import NodeOutput
from engine.watermark.green_list import green_notes

KEPT = 64  # captures kept until it is known which token followed them
INPUT = "recipe"  # the stage that holds what the code gave to the processors

Text = tuple[int, ...]


class Capture(NamedTuple):
    """What was captured after a text; tensors are (1, vocab)."""

    text: Text
    logits: Tensor | None  # the model's
    stages: tuple[Stage, ...]  # what the processors were given, then what each of them returned
    passes: int  # forward passes since the call began, and the tokens they evaluated
    tokens: int

    @property
    def parts(self) -> str:
        """What was captured, as the trace notes it."""
        return " and ".join(
            ["model"] * (self.logits is not None) + ["processors"] * bool(self.stages)
        )


class CallStopped(BaseException):
    """Ends the code at its next forward pass; `except Exception` does not catch it."""


class CapturedCall:
    """One call of custom decoding code on its own thread."""

    def __init__(self, module: PreTrainedModel, call: Callable[[CapturedCall], Any]) -> None:
        self._module = module
        self._call = call
        self._captures: queue.SimpleQueue[Capture | None] = queue.SimpleQueue()
        self._logits: OrderedDict[Text, Tensor] = OrderedDict()  # no processor was called on yet
        # The texts each cache holds, row by row; weak keys, as another cache may get the same id.
        self._texts: WeakKeyDictionary[Any, list[Text]] = WeakKeyDictionary()
        self._current: list[Text] = []  # the texts of the current pass, if they are known
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="custom_generate", daemon=True)
        self.passes = 0
        self.tokens = 0
        self.result: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the call."""
        self._thread.start()

    def stop(self) -> None:
        """End the call at its next forward pass."""
        self._stop.set()

    def next(self, timeout: float) -> Capture | None:
        """The next capture, or None if there is none within ``timeout`` seconds."""
        try:
            return self._captures.get(timeout=timeout)
        except queue.Empty:
            return None

    @property
    def over(self) -> bool:
        """Whether the call has ended and every capture was taken."""
        return not self._thread.is_alive() and self._captures.empty()

    def unprocessed(self) -> Iterator[Capture]:
        """Logits on which no processor was called."""
        for text, logits in self._logits.items():
            yield Capture(text, logits, (), self.passes, self.tokens)

    def processed(self, ids: Tensor, stages: list[Stage]) -> None:
        """Capture what processors were given and returned, (rows, vocab), for some texts."""
        for row, text in enumerate(ids.tolist()):
            own = tuple(Stage(stage.name, stage.scores[row][None]) for stage in stages)
            logits = self._logits.pop(tuple(text), None)
            self._captures.put(Capture(tuple(text), logits, own, self.passes, self.tokens))

    def _work(self) -> None:
        hooks = (
            self._module.register_forward_pre_hook(self._before_pass, with_kwargs=True),
            self._module.register_forward_hook(self._after_pass, with_kwargs=True),
        )
        try:
            with torch.no_grad():
                self.result = self._call(self)
        except BaseException as error:
            self.error = error
        finally:
            for hook in hooks:
                hook.remove()
            self._captures.put(None)

    def _before_pass(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.current_thread() is not self._thread:
            return
        if self._stop.is_set():
            raise CallStopped
        ids, cache = _inputs(args, kwargs)
        self._current = []
        if ids is None:
            return
        self.passes += 1
        self.tokens += ids.numel()
        before = self._texts.get(cache, []) if cache is not None else []
        held = int(cache.get_seq_length()) if cache is not None else 0
        # Rows may have been reordered inside the cache: only a single row surely continues itself.
        if held == 0:
            self._current = [tuple(row) for row in ids.tolist()]
        elif len(before) == 1 == len(ids) and len(before[0]) >= held:
            self._current = [before[0][:held] + tuple(ids[0].tolist())]
        if cache is not None:
            self._texts[cache] = self._current

    def _after_pass(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if threading.current_thread() is not self._thread or logits is None:
            return
        for row, text in enumerate(self._current if len(self._current) == len(logits) else []):
            places = logits.shape[1]
            for place in range(places):
                end = len(text) - places + place + 1
                self._keep(text[:end], logits[row, place][None].float())

    def _keep(self, text: Text, logits: Tensor) -> None:
        self._logits[text] = logits
        if len(self._logits) > KEPT:
            oldest, row = self._logits.popitem(last=False)
            self._captures.put(Capture(oldest, row, (), self.passes, self.tokens))


class CodeCapture:
    """Runs custom decoding code for one run and records what was captured in its trace."""

    def __init__(
        self,
        model: Model,
        repeat_call: Callable[..., Any] | None,
        recorder: Recorder,
        token_decoder: TokenDecoder,
        watermark: WatermarkLogitsProcessor | None,
    ) -> None:
        assert repeat_call is not None, "prepared by `prepare`, which gives the call to repeat"
        self._model = model
        self._repeat_call = repeat_call
        self._recorder = recorder
        self._token_decoder = token_decoder
        self._watermark = watermark

    def of_function(self, decode: Callable[..., Any], arguments: Mapping[str, Any]) -> CapturedCall:
        """A call of a function that takes what transformers prepares for a ``custom_generate``
        callable; not started yet."""

        def call(captured: CapturedCall) -> Any:
            @wraps(decode)
            def capturing(*args: Any, logits_processor: Any, **kwargs: Any) -> Any:
                processors = _CapturingProcessors(logits_processor, captured)
                return decode(*args, logits_processor=processors, **kwargs)

            return self._repeat_call(self._model.generate, custom_generate=capturing, **arguments)

        return CapturedCall(self._model.module, call)

    def of_recipe(self, generate: Callable[..., Any], arguments: Mapping[str, Any]) -> CapturedCall:
        """A call of a recipe's ``generate``, which takes the arguments of `generate` itself."""

        def call(captured: CapturedCall) -> Any:
            on_model = partial(generate, model=self._model.module)
            return self._repeat_call(on_model, further=[_CapturingProcessor(captured)], **arguments)

        return CapturedCall(self._model.module, call)

    def record(self, parent: int | None, token: int, capture: Capture | None) -> int:
        """Write a token that the code took to the trace; returns its step."""
        if capture is None:
            entry = self._recorder.add_step(parent, token, "chosen", {"captured": "nothing"})
            self._recorder.write(entry)
            return entry.id
        observed = self._observed(capture, token)
        notes = self._green(capture, token)
        entry = self._recorder.add_step(parent, token, "chosen", {"captured": capture.parts})
        self._recorder.write(entry, lambda: observed, notes)
        return entry.id

    def _observed(self, capture: Capture, token: int) -> Observation:
        logits, stages, picks = capture.logits, list(capture.stages), [(0, token)]
        if logits is None:
            given, *rest = stages
            [observed] = observe(NodeOutput.of(given.scores), rest, picks, self._token_decoder)
            return without_model(observed, given)
        if stages and torch.allclose(stages[0].scores.softmax(-1), logits.softmax(-1), atol=1e-6):
            stages.pop(0)  # the code gave the processors the model's own distribution
        [observed] = observe(NodeOutput.of(logits), stages, picks, self._token_decoder)
        return observed

    def _green(self, capture: Capture, token: int) -> Mapping[str, Any]:
        """A note whether the token is green, where the watermark's processor was captured."""
        if self._watermark is not None:
            name = processor_name(self._watermark)
            for before, stage in zip(capture.stages, capture.stages[1:], strict=False):
                if stage.name == name:
                    texts, picks = [capture.text], [(0, token)]
                    return green_notes(self._watermark, texts, before.scores, picks)[0]
        return {}


class _CapturingProcessors(LogitsProcessorList):
    """Calls processors one by one and captures what each returns."""

    def __init__(self, processors: LogitsProcessorList, call: CapturedCall) -> None:
        super().__init__(processors)
        self._call = call

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        stages = [Stage(INPUT, scores.detach().float().clone())]
        for processor in self:
            scores = LogitsProcessorList([processor])(input_ids, scores, **kwargs)
            stages.append(Stage(processor_name(processor), scores.detach().float().clone()))
        self._call.processed(input_ids, stages)
        return scores


class _CapturingProcessor(LogitsProcessor):
    """Changes nothing and captures the scores, for a list of processors that others call."""

    def __init__(self, call: CapturedCall) -> None:
        self._call = call

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._call.processed(input_ids, [Stage(INPUT, scores.detach().float().clone())])
        return scores


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, Any]:
    """The token ids and the cache of a forward pass."""
    ids = kwargs.get("decoder_input_ids")
    ids = kwargs.get("input_ids") if ids is None else ids
    ids = args[0] if ids is None and args else ids
    return ids, kwargs.get("past_key_values")
