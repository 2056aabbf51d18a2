"""Greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run
from engine.strategy import Decoding, strategy


@dataclass(frozen=True)
class Params:
    """Greedy decoding has no settings of its own."""


@strategy("greedy", order=1, params=Params, do_sample=False, num_beams=1)
def greedy(run: Run, params: Params) -> Decoding:
    """Takes the most probable token at each step.

    Deterministic: a prompt always gives the same text. The most probable tokens do not make the
    most probable text, and long texts tend to repeat themselves.
    """
    node = run.root
    while True:
        [[token]], _, _ = yield from run.best([node], 1)
        step = run.choose(node, token)
        run.show([step])
        [stop] = run.stops([node], [token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        [node] = yield [(node, token)]
