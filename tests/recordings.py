"""CUDA graphs without a GPU: fixed input tensors, and results that later replays overwrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.accel import accelerated_pool, graphs
from engine.accel.graphs import Graphs
from engine.trace import deferred_writer


class _FakeGraph:
    """Stands in for a CUDA graph: computes again and writes into the tensors of the first result.

    Graphs share memory: a replay may overwrite the results of the others, and here always does.
    """

    def __init__(
        self, among: Graphs[Any], work: Callable[..., Any], read: Sequence[Tensor], result: Any
    ) -> None:
        self._among, self._work, self._read, self._result = among, work, read, result

    def replay(self) -> None:
        for other in self._among._recordings.values():
            for target in tensors(other.result):
                target.fill_(-1)
        again = tensors(self._work(*self._read))
        for target, new in zip(tensors(self._result), again, strict=True):
            target.copy_(new)


def tensors(result: Any) -> Iterator[Tensor]:
    """All tensors in a result."""
    if isinstance(result, Tensor):
        yield result
    elif is_dataclass(result):
        for part in fields(result):
            yield from tensors(getattr(result, part.name))
    elif isinstance(result, tuple | list):
        for each in result:
            yield from tensors(each)


def _record(
    self: Graphs[Any], work: Callable[..., Any], shape: Any, inputs: Sequence[Tensor]
) -> Any:
    read = [given.clone() for given in inputs]
    result = work(*read)
    self._recordings[shape] = graphs._Recording(_FakeGraph(self, work, read, result), read, result)
    return self._recordings[shape]


def _copy(given: Sequence[Tensor], read: Sequence[Tensor]) -> None:
    for own, target in zip(given, read, strict=True):
        target.copy_(own)


def as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """Record every pool's passes as graphs, and write traces during the next tick."""
    made = Graphs.__init__

    def with_tries(self: Graphs[Any], *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self._tries = graphs.TRIES

    patch.setattr(Graphs, "__init__", with_tries)
    patch.setattr(Graphs, "_record", torch.inference_mode()(_record))
    patch.setattr(graphs, "_copy", _copy)
    patch.setattr(accelerated_pool, "recordable", lambda model: True)
    patch.setattr(deferred_writer, "is_asynchronous", lambda device: True)
