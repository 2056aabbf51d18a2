"""Work on a GPU, recorded once for each shape and played back in one launch.

A small model's tick is a thousand kernels of a few microseconds: to launch them one by one takes
ten times as long as to run them. Knows CUDA graphs, when to record one and when to let it go.
Refuses to know what the work is. Whatever goes wrong while recording, the work is done step by
step from then on, and the log says why.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from engine.accel.fusing import ALONE, Fused

log = logging.getLogger(__name__)

ROWS = 64  # most rows of work that is recorded: beyond them kernels are long and launches cheap
MOST = 32  # recordings kept; each has a few vocabulary rows of its own on the device

TRIES = 3  # failed recordings after which no more are made
CALM = 50  # times that recordings are played before the compiler is started: shapes are known then

T = TypeVar("T")


class _Recording(NamedTuple, Generic[T]):
    graph: Any  # torch.cuda.CUDAGraph, which has no types
    inputs: Sequence[Tensor]  # where it reads
    result: T  # where it writes


class Graphs(Generic[T]):
    """The recordings of one kind of work. One thread at a time: its owner sees to that."""

    def __init__(self, device: torch.device, fused: Fused | None = None, most: int = MOST) -> None:
        self._device = device
        self._most = most
        self._fused = fused  # the compiled parts of what is recorded, once they are
        self._swapped = False
        self._recordings: OrderedDict[Hashable, _Recording[T]] = OrderedDict()
        self._met: set[Hashable] = set()
        self._memory: Any = None  # what the recordings share: no two are played at the same time
        self._tries = TRIES if device.type == "cuda" else 0
        self._played = 0
        self.failure: str | None = None  # why nothing more is recorded, if so

    @property
    def count(self) -> int:
        """How many shapes are recorded."""
        return len(self._recordings)

    def clear(self) -> None:
        """Forget all recordings: the memory they read and write has moved."""
        self._recordings.clear()
        self._met.clear()
        self._memory = None

    @torch.inference_mode()
    def play(self, work: Callable[..., T], shape: Hashable, *inputs: Tensor) -> T:
        """Do the work on inputs of some shape; the result is good until the next call.

        A shape is worked step by step when it is first met, which also loads its kernels, and
        recorded when it is met again: that takes no longer than a step. The work is always the
        same one, and only not kept because it would hold whoever holds this.
        """
        self._swap()
        recording = self._recordings.get(shape)
        # Where somebody else records or compiles just now, there will be another time.
        if recording is None and shape in self._met and self._tries and ALONE.acquire(False):
            try:
                recording = self._record(work, shape, inputs)
            finally:
                ALONE.release()
        self._met.add(shape)
        if recording is None:
            return work(*(given.to(self._device) for given in inputs))
        self._recordings.move_to_end(shape)
        _copy(inputs, recording.inputs)
        recording.graph.replay()
        self._played += 1
        if self._fused is not None and self._played == CALM:
            self._fused.begin()
        return recording.result

    def _swap(self) -> None:
        """Once parts are compiled, have everything recorded again with them when it is met."""
        if self._fused is not None and self._fused.ready and not self._swapped:
            self._recordings.clear()
            self._memory = None
            self._swapped = True

    def _record(
        self, work: Callable[..., T], shape: Hashable, inputs: Sequence[Tensor]
    ) -> _Recording[T] | None:
        try:
            read = [given.to(self._device, copy=True) for given in inputs]
            self._memory = self._memory or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # What a thread multiplies matrices with is made when it first does; not in a recording.
            torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]  # torch
            # Other threads may use the device meanwhile: what they do is not recorded. A recording
            # that fails leaves its thread on its stream, where the next one's are made.
            with self._parts(), torch.cuda.stream(torch.cuda.current_stream(self._device)):
                if self._swapped:
                    work(*read)  # loads the compiled kernels
                with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
                    result = work(*read)
        except Exception as error:  # whatever a model does that cannot be recorded
            log.warning("not recorded as a CUDA graph, but run step by step: %s", error)
            self._tries -= 1
            if not self._tries:
                self.failure = str(error)
            self.clear()
            return None
        self._recordings[shape] = _Recording(graph, read, result)
        if len(self._recordings) > self._most:
            self._recordings.popitem(last=False)
        return self._recordings[shape]

    def _parts(self) -> AbstractContextManager[None]:
        return self._fused.used() if self._fused is not None and self._swapped else nullcontext()


def recordable(model: nn.Module) -> bool:
    """Whether a model's work may be tried as a graph: all of it must be on one GPU."""
    devices = {weight.device for weight in model.parameters()}
    return len(devices) == 1 and next(iter(devices)).type == "cuda"


def _copy(given: Sequence[Tensor], read: Sequence[Tensor]) -> None:
    """Put inputs where a recording reads them."""
    there: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for own, place in zip(given, read, strict=True):
        if own.device.type == "cuda":
            places, owns = there.setdefault(own.dtype, ([], []))
            places.append(place)
            owns.append(own)
        else:  # there is little of it, and the device takes it along at once
            place.copy_(own, non_blocking=True)
    for places, owns in there.values():  # all of a kind in one launch
        torch._foreach_copy_(places, owns)


def bucket(size: int, least: int = 1) -> int:
    """The size of the shape a size is filled up to, so that shapes repeat: a power of two."""
    return max(least, 1 << (size - 1).bit_length())
