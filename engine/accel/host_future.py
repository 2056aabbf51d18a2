"""Pending device-to-host copies.

Reading a tensor of a GPU blocks the host until the GPU has computed it. A `HostFuture` starts the
copy and lets the host go on with other work until the numbers are needed.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor


def record_event(device: torch.device, *, timed: bool = False) -> torch.Event | None:
    """Record an event after all work queued on a GPU so far; None on other devices."""
    if device.type != "cuda":
        return None
    event = torch.Event(device, enable_timing=timed)  # torch.cuda looks the stream up in Python
    event.record(torch.accelerator.current_stream(device.index))
    return event


class HostFuture:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        # The copy is queued right after the work: a CUDA graph overwrites its result when
        # replayed.
        self._host = tensor.to("cpu", non_blocking=True, copy=True)
        self._event = record_event(tensor.device)

    @property
    def pending(self) -> bool:
        """Whether `result` may have to wait."""
        return self._event is not None

    @property
    def done(self) -> bool:
        """Whether the copy has arrived."""
        return self._event is None or self._event.query()

    def start(self) -> None:
        """Launch the work, where it waits to be batched with that of others."""

    def result(self) -> Tensor:
        """The tensor on the host; waits for it."""
        event = self._event  # read once: several threads may call this
        if event is not None:
            event.synchronize()
            # Out of pinned memory, which is scarce: some results are kept for long.
            self._host = self._host.clone()
            self._event = None
        return self._host


def fetch(future: HostFuture) -> Generator[HostFuture, Tensor, Tensor]:
    """Hand a pending future to the loop, which resumes this generator with the result."""
    return (yield future) if future.pending else future.result()
