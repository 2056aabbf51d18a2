"""What a strategy asks of the scores it decides by, in one question to the device.

Every answer of a GPU is waited for, and every launch takes the host as long as a small kernel takes
the GPU: so all that a decision needs is recorded as one piece of work, its answer is fetched in one
piece, and nobody waits for it before all others have asked. Knows how work is put to a device.
Refuses to know what is decided.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from engine.accel.graphs import Graphs
from engine.accel.host_future import HostFuture
from engine.trie.backend import most


class Deciding:
    """Answers all who read one model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: Graphs[Tensor] | None = None

    def __call__(
        self, work: Callable[..., Tensor], *inputs: Tensor, **constants: Any
    ) -> HostFuture:
        """Ask what some work on tensors comes to.

        The first of the inputs says on what device; the work must be a function that is always the
        same object, and may not ask the device anything itself.
        """
        device = inputs[0].device
        ready = partial(work, **constants)
        if device.type != "cuda":
            return HostFuture(ready(*inputs))
        with self._lock:
            self._graphs = self._graphs or Graphs(device)
            shape = (work, *sorted(constants.items()), *(given.shape for given in inputs))
            return HostFuture(self._graphs.play(ready, shape, *inputs))


def highest(scores: Tensor, count: int) -> Tensor:
    """The places of the highest scores in each row, (rows, count), highest first."""
    # Of equal ones a CPU takes those that `generate` takes there.
    return most(scores, count) if scores.device.type == "cuda" else scores.topk(count).indices
