"""A question to a device, and its answer on the host.

Every answer of a GPU is waited for: so whoever asks goes on with something else until it is there.
Knows how numbers come to the host. Refuses to know what they are.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor


def reached(device: torch.device, *, timed: bool = False) -> torch.Event | None:
    """The event of a GPU having done what it was given up to now; None elsewhere."""
    if device.type != "cuda":
        return None
    event = torch.Event(device, enable_timing=timed)  # torch.cuda finds the stream in Python
    event.record(torch.accelerator.current_stream(device.index))
    return event


class HostFuture:
    """Something a device was asked; to call it waits for the answer, on the host."""

    def __init__(self, asked: Tensor) -> None:
        # Copied right behind the work: a recording writes over its result when it is played again.
        self._told = asked.to("cpu", non_blocking=True, copy=True)
        self._there = reached(asked.device)

    @property
    def open(self) -> bool:
        """Whether there is anything to wait for."""
        return self._there is not None

    @property
    def there(self) -> bool:
        """Whether the answer has come."""
        return self._there is None or self._there.query()

    def begin(self) -> None:
        """Have the device work it out, now that everyone has asked: some wait for others to be
        worked out with."""

    def __call__(self) -> Tensor:
        """The answer."""
        there = self._there  # several may ask, on threads of their own
        if there is not None:
            there.synchronize()
            # Some keep answers for long, and memory that a device writes to is dear.
            self._told = self._told.clone()
            self._there = None
        return self._told


Asking = Generator[HostFuture, Tensor, Tensor]


def answered(question: HostFuture) -> Asking:
    """The answer to a question, for a generator to go on with when it has come."""
    return (yield question) if question.open else question()
