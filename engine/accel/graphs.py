"""CUDA graphs: work on a GPU, recorded once for each shape and replayed in one launch.

A forward pass of a small model is a thousand kernels of a few microseconds; launching them one by
one takes ten times as long as running them. Where recording fails, the work runs step by step from
then on, and the reason is logged.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from engine.accel import enabled

log = logging.getLogger(__name__)

ROWS = 64  # most rows of recorded work: with more, kernels take longer than their launches
MOST = 32  # recordings kept; each holds a few vocabulary rows on the device
TRIES = 3  # failed recordings after which no more are made

# Held while a graph is recorded: two recordings at a time fail.
RECORDING = threading.Lock()

T = TypeVar("T")


class _Recording(NamedTuple, Generic[T]):
    graph: Any  # torch.cuda.CUDAGraph, which has no types
    inputs: Sequence[Tensor]  # where it reads
    result: T  # where it writes


class Graphs(Generic[T]):
    """The recordings of one kind of work. Not thread-safe: the owner holds a lock."""

    def __init__(self, device: torch.device, most: int = MOST) -> None:
        self._device = device
        self._most = most
        self._recordings: OrderedDict[Hashable, _Recording[T]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._memory: Any = None  # shared by the recordings: no two are replayed at the same time
        self._tries = TRIES if device.type == "cuda" and enabled() else 0
        self.failure: str | None = None  # why no more recordings are made, if so

    @property
    def count(self) -> int:
        """How many shapes are recorded."""
        return len(self._recordings)

    def clear(self) -> None:
        """Drop all recordings: the memory they read and write has moved."""
        self._recordings.clear()
        self._seen.clear()
        self._memory = None

    @torch.inference_mode()
    def play(self, work: Callable[..., T], shape: Hashable, *inputs: Tensor) -> T:
        """Do the work on inputs of some shape; the result is valid until the next call.

        The first time, a shape runs step by step, which also loads its kernels; the second time it
        is recorded, which takes no longer than a step. ``work`` must be the same for every call. It
        is not stored: it would create a reference cycle with the owner.
        """
        recording = self._recordings.get(shape)
        # If another thread is recording, this shape is recorded the next time.
        if recording is None and shape in self._seen and self._tries and RECORDING.acquire(False):
            try:
                recording = self._record(work, shape, inputs)
            finally:
                RECORDING.release()
        self._seen.add(shape)
        if recording is None:
            return work(*(given.to(self._device) for given in inputs))
        self._recordings.move_to_end(shape)
        _copy(inputs, recording.inputs)
        recording.graph.replay()
        return recording.result

    def _record(
        self, work: Callable[..., T], shape: Hashable, inputs: Sequence[Tensor]
    ) -> _Recording[T] | None:
        try:
            read = [given.to(self._device, copy=True) for given in inputs]
            self._memory = self._memory or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            # A thread's cuBLAS handle is created at its first product; not during a recording.
            torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]  # torch
            # Other threads may use the device meanwhile: their work is not recorded. A recording
            # that fails leaves its thread on its own stream; the context restores the current one.
            with (
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"),
            ):
                result = work(*read)
        except Exception as error:  # a model may do things that cannot be recorded
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


def recordable(model: nn.Module) -> bool:
    """Whether a model's forward pass can be recorded: all of it must be on one GPU."""
    devices = {weight.device for weight in model.parameters()}
    return len(devices) == 1 and next(iter(devices)).type == "cuda"


def _copy(inputs: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    """Copy inputs to where a recording reads them."""
    on_device: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for given, place in zip(inputs, places, strict=True):
        if given.device.type == "cuda":
            targets, sources = on_device.setdefault(given.dtype, ([], []))
            targets.append(place)
            sources.append(given)
        else:  # small: the copy starts at once
            place.copy_(given, non_blocking=True)
    for targets, sources in on_device.values():
        # private: one launch for all copies of a dtype. Without it, copy one by one.
        torch._foreach_copy_(targets, sources)


def bucket(size: int, least: int = 1) -> int:
    """A size rounded up to a power of two, so that shapes repeat."""
    return max(least, 1 << (size - 1).bit_length())
