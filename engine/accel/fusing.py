"""A model's small parts, compiled behind its back and used where a tick is recorded.

Most kernels of a small model's tick belong to its norms, its rotary positions and its activations:
compiled, each of these is one kernel. Equal parts are compiled once, however many layers there
are, which takes seconds where the whole model takes half a minute for every shape. Knows which
parts of a transformers model can be compiled by themselves, and on what thread. Refuses to know
what a tick is. Whatever goes wrong, the parts stay as they are, and the log says why.

TORCH_COMPILE_DISABLE=1, torch's own switch, turns it off.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

log = logging.getLogger(__name__)

KINDS = ("Norm", "MLP")  # how the classes of parts that can be compiled alone are called
ROTARY = "apply_rotary_pos_emb"  # what transformers calls the function in the model's own module
# The numbers of rows to compile for: two different ones make the third for any number, and one
# row is always a case of its own.
ROWS = (64, 24, 1)
CLOSE = {4: 1e-3, 2: 0.03}  # how far what comes out may be off, as a share of the largest of it

# Held by whoever records a CUDA graph or compiles: neither bears the other, nor one of its kind.
ALONE = threading.Lock()

_here = threading.local()  # how this thread uses the compiled parts, if it does
_patching = threading.Lock()
# While torch traces a function, a module called on another thread may be taken for part of it:
# whoever calls a model that is being compiled holds this.
TRACING = threading.RLock()


class _Part:
    """A function that is looked up on something whenever it is called."""

    def __init__(self, holder: Any, name: str, fused: Callable[..., Any]) -> None:
        self._holder = holder
        self._name = name
        self._plain = getattr(holder, name)
        self.fused = fused
        self._users = 0

    def put(self) -> None:
        """Let threads that want it have the compiled one."""
        self._users += 1
        if self._users == 1:
            setattr(self._holder, self._name, self._either)

    def put_back(self) -> None:
        """Leave no trace, once nobody wants it any more."""
        self._users -= 1
        if not self._users and isinstance(self._holder, nn.Module):
            delattr(self._holder, self._name)
        elif not self._users:
            setattr(self._holder, self._name, self._plain)

    def _either(self, *args: Any, **kwargs: Any) -> Any:
        way = getattr(_here, "way", None)
        if way == "using":
            return self.fused(*args, **kwargs)
        expected = self._plain(*args, **kwargs)
        if way == "checking":
            _check(self._name, self.fused(*args, **kwargs), expected)
        return expected


class Fused:
    """The compiled parts of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = weakref.ref(model)
        self.parts: list[_Part] = []
        self._thread: threading.Thread | None = None
        self.ready = False

    @staticmethod
    def of(model: PreTrainedModel) -> Fused:
        """The one that all who run a model share."""
        with _patching:
            return _known.setdefault(model, Fused(model))

    def begin(self) -> None:
        """Start to compile on a thread of its own, unless that was begun before."""
        if self._thread is None and not torch._dynamo.config.disable:
            self._thread = threading.Thread(target=self._work, name="compiling", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until all is compiled, or has failed to be."""
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def used(self, way: str = "using") -> Iterator[None]:
        """Have the model use its compiled parts on this thread, or check them on the way."""
        with _patching:
            for part in self.parts:
                part.put()
        _here.way = way
        try:
            yield
        finally:
            _here.way = None
            with _patching:
                for part in self.parts:
                    part.put_back()

    def _work(self) -> None:
        # The threads that run ticks are to wait no longer for this one than they must.
        interval = sys.getswitchinterval()
        try:
            sys.setswitchinterval(min(interval, 0.0005))
            model = self._model()
            if model is not None:
                with torch.inference_mode(), _tracing_alone(), ALONE:
                    self.parts = parts_of(model)
                    self._compile(model)
                self.ready = bool(self.parts)
        except Exception as error:  # whatever a model has that cannot be compiled
            log.warning("parts of the model are not compiled: %s", error)
        finally:
            sys.setswitchinterval(interval)

    def _compile(self, model: PreTrainedModel) -> None:
        """Have every part compiled by using it, and see that it makes no difference."""
        for rows in ROWS:
            ids = torch.arange(5, 5 + rows, device=model.device)[None]
            with self.used("checking"):
                model(input_ids=ids, use_cache=False)


_known: WeakKeyDictionary[PreTrainedModel, Fused] = WeakKeyDictionary()
_rotary: dict[str, _Part] = {}  # by the module of the model: all models of a kind share it


@contextmanager
def _tracing_alone() -> Iterator[None]:
    """Have torch trace functions only while nobody calls a model on another thread."""
    trace = torch.fx.Tracer.trace

    @wraps(trace)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with TRACING:
            return trace(*args, **kwargs)

    vars_of: Any = torch.fx.Tracer
    vars_of.trace = alone
    try:
        yield
    finally:
        vars_of.trace = trace


def _check(name: str, got: Any, expected: Any) -> None:
    pairs = [(got, expected)] if isinstance(expected, Tensor) else zip(got, expected, strict=True)
    for one, other in pairs:
        apart = ((one - other).abs().max() / other.abs().max().clamp(min=1e-6)).item()
        if not apart < CLOSE[other.element_size()]:
            raise ValueError(f"compiled, {name} is off by {apart:.2g} of the largest number")


def parts_of(model: PreTrainedModel) -> list[_Part]:
    """The parts of a model that are compiled; those of one class share what comes of it."""
    compiled: dict[type, Callable[..., Any]] = {}
    parts, homes = [], set()
    for module in model.modules():
        kind = type(module)
        if not kind.__module__.startswith("transformers.models."):
            continue
        homes.add(kind.__module__)
        if kind.__name__.endswith(KINDS) and "forward" not in vars(module):
            fused = compiled.setdefault(kind, torch.compile(kind.forward))
            parts.append(_Part(module, "forward", MethodType(fused, module)))
    with _patching:
        for home in homes & set(sys.modules):
            if home not in _rotary and (plain := getattr(sys.modules[home], ROTARY, None)):
                _rotary[home] = _Part(sys.modules[home], ROTARY, torch.compile(plain))
        return parts + [_rotary[home] for home in homes if home in _rotary]
