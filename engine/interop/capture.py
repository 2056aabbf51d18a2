"""Somebody else's decoding code, watched from inside its call.

The code runs on a thread of its own and uses the model as it likes. What it asks of the model is
seen by a hook, what it asks of the processors by a list that stands in for theirs; both tell which
text they were asked about, as far as that can be known. Refuses to look anything up afterwards.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from engine.trace.distributions import Stage, processor_name

KEPT = 64  # logits rows kept until it is known which token was taken from them

Text = tuple[int, ...]


class Sighting(NamedTuple):
    """What was given after a text: the model's logits where they were seen, and what the
    processors made of what they got; rows of (1, vocab)."""

    text: Text
    logits: Tensor | None
    stages: tuple[Stage, ...]
    passes: int  # of the model, and the tokens they took, from the start of the call to here
    tokens: int

    def read(self) -> tuple[Tensor, list[Stage], str]:
        """The logits, the stages behind them, and what of all that was seen."""
        logits, stages = self.logits, list(self.stages)
        captured = ["model"] * (logits is not None) + ["processors"] * bool(stages)
        if logits is None:
            logits = stages[0].scores
        if stages and torch.allclose(stages[0].scores.softmax(-1), logits.softmax(-1), atol=1e-6):
            stages.pop(0)  # the code gave the processors what the model had given it
        return logits, stages, " and ".join(captured)


class Stopped(BaseException):
    """Ends the watched code at its next use of the model; no `except Exception` holds it up."""


class Witness:
    """One call of somebody's code."""

    def __init__(self, module: PreTrainedModel, call: Callable[[Witness], Any]) -> None:
        self._module = module
        self._call = call
        self._seen: queue.SimpleQueue[Sighting | None] = queue.SimpleQueue()
        self._logits: OrderedDict[Text, Tensor] = OrderedDict()  # not yet asked processors about
        # What each cache holds, row by row; weakly, as another one may come to lie in its place.
        self._texts: WeakKeyDictionary[Any, list[Text]] = WeakKeyDictionary()
        self._asking: list[Text] = []  # the texts of the pass under way, where they are known
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="recipe", daemon=True)
        self.passes = 0
        self.tokens = 0
        self.result: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin the call."""
        self._thread.start()

    def stop(self) -> None:
        """End it at its next use of the model."""
        self._stop.set()

    def sighting(self, seconds: float) -> Sighting | None:
        """The next thing seen, waiting a moment for it."""
        try:
            return self._seen.get(timeout=seconds)
        except queue.Empty:
            return None

    @property
    def over(self) -> bool:
        """Whether the call has returned and all it showed was taken."""
        return not self._thread.is_alive() and self._seen.empty()

    def watched(self, processors: LogitsProcessorList) -> LogitsProcessorList:
        """A list of processors that does what these do, and tells."""
        return _Watched(processors, self)

    def eye(self) -> LogitsProcessor:
        """A processor that changes nothing and tells, for a list that is not called as a whole."""
        return _Eye(self)

    def unprocessed(self) -> Iterator[Sighting]:
        """Logits that no processor was asked about."""
        for text, logits in self._logits.items():
            yield Sighting(text, logits, (), self.passes, self.tokens)

    def _work(self) -> None:
        hooks = (
            self._module.register_forward_pre_hook(self._asked, with_kwargs=True),
            self._module.register_forward_hook(self._answered, with_kwargs=True),
        )
        try:
            with torch.no_grad():
                self.result = self._call(self)
        except BaseException as error:
            self.error = error
        finally:
            for hook in hooks:
                hook.remove()
            self._seen.put(None)

    def _asked(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.current_thread() is not self._thread:
            return
        if self._stop.is_set():
            raise Stopped
        ids, cache = _inputs(args, kwargs)
        self._asking = []
        if ids is None:
            return
        self.passes += 1
        self.tokens += ids.numel()
        before = self._texts.get(cache, []) if cache is not None else []
        held = int(cache.get_seq_length()) if cache is not None else 0
        # Rows may have been exchanged inside the cache: only one row is sure to go on from itself.
        if held == 0:
            texts: list[Text] = [tuple(row) for row in ids.tolist()]
        elif len(before) == 1 == len(ids) and len(before[0]) >= held:
            texts = [before[0][:held] + tuple(ids[0].tolist())]
        else:
            texts = []
        self._asking = texts
        if cache is not None:
            self._texts[cache] = texts

    def _answered(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if threading.current_thread() is not self._thread or logits is None:
            return
        for row, text in enumerate(self._asking if len(self._asking) == len(logits) else []):
            places = logits.shape[1]
            for place in range(places):
                end = len(text) - places + place + 1
                self._keep(text[:end], logits[row, place][None].float())

    def _keep(self, text: Text, logits: Tensor) -> None:
        self._logits[text] = logits
        if len(self._logits) > KEPT:
            gone, row = self._logits.popitem(last=False)
            self._seen.put(Sighting(gone, row, (), self.passes, self.tokens))

    def _processed(self, ids: Tensor, stages: list[Stage]) -> None:
        for row, text in enumerate(ids.tolist()):
            own = tuple(Stage(stage.name, stage.scores[row][None]) for stage in stages)
            logits = self._logits.pop(tuple(text), None)
            self._seen.put(Sighting(tuple(text), logits, own, self.passes, self.tokens))


class _Watched(LogitsProcessorList):
    """Does what the processors do, and tells the witness."""

    def __init__(self, processors: LogitsProcessorList, witness: Witness) -> None:
        super().__init__(processors)
        self._witness = witness

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        stages = [Stage("recipe", scores.detach().float().clone())]
        for processor in self:
            scores = LogitsProcessorList([processor])(input_ids, scores, **kwargs)
            stages.append(Stage(processor_name(processor), scores.detach().float().clone()))
        self._witness._processed(input_ids, stages)
        return scores


class _Eye(LogitsProcessor):
    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._witness._processed(input_ids, [Stage("recipe", scores.detach().float().clone())])
        return scores


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, Any]:
    ids = kwargs.get("decoder_input_ids")
    ids = kwargs.get("input_ids") if ids is None else ids
    ids = args[0] if ids is None and args else ids
    return ids, kwargs.get("past_key_values")
