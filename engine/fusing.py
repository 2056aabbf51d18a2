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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any, NamedTuple

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

_here = threading.local()  # how this thread uses the compiled parts, if it does


class _Part(NamedTuple):
    """A function that is looked up on something whenever it is called."""

    holder: Any
    name: str
    plain: Callable[..., Any]
    fused: Callable[..., Any]

    def either(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled one on threads that want it."""
        way = getattr(_here, "way", None)
        if way == "using":
            return self.fused(*args, **kwargs)
        expected = self.plain(*args, **kwargs)
        if way == "checking":
            _check(self.name, self.fused(*args, **kwargs), expected)
        return expected


class Fused:
    """The compiled parts of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._parts: list[_Part] = []
        self._users = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.ready = False

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
        with self._lock:
            self._users += 1
            if self._users == 1:
                for part in self._parts:
                    setattr(part.holder, part.name, part.either)
        _here.way = way
        try:
            yield
        finally:
            _here.way = None
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._put_back()

    def _put_back(self) -> None:
        for part in self._parts:
            if isinstance(part.holder, nn.Module):
                delattr(part.holder, part.name)
            else:
                setattr(part.holder, part.name, part.plain)

    def _work(self) -> None:
        # The threads that run ticks are to wait no longer for this one than they must.
        interval = sys.getswitchinterval()
        try:
            sys.setswitchinterval(min(interval, 0.0005))
            with torch.inference_mode():
                self._parts = parts_of(self._model)
                self._compile()
            self.ready = bool(self._parts)
        except Exception as error:  # whatever a model has that cannot be compiled
            log.warning("parts of the model are not compiled: %s", error)
        finally:
            sys.setswitchinterval(interval)

    def _compile(self) -> None:
        """Have every part compiled by using it, and see that it makes no difference."""
        for rows in ROWS:
            ids = torch.arange(5, 5 + rows, device=self._model.device)[None]
            with self.used("checking"):
                self._model(input_ids=ids, use_cache=False)


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
            parts.append(_Part(module, "forward", module.forward, MethodType(fused, module)))
    for home in (sys.modules[name] for name in homes):
        if plain := getattr(home, ROTARY, None):
            parts.append(_Part(home, ROTARY, plain, torch.compile(plain)))
    return parts
