"""Greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.run import Run
from engine.strategy import Decoding, strategy


@dataclass(frozen=True)
class Params:
    """Greedy decoding has no settings of its own."""


@strategy("greedy", order=1, params=Params, do_sample=False, num_beams=1)
def greedy(run: Run, params: Params) -> Decoding:
    """Always takes the most probable token.

    The same prompt always gives the same text. What is most probable at each step need not be
    most probable as a whole, and long texts tend to repeat themselves.
    """
    node = run.root
    while True:
        if best := (yield from run.best([node], 1)):
            token = best.tokens[0][0]
        else:
            token = int((yield from run.ask(torch.argmax, run.scores([node]))))
        step = run.choose(node, token)
        run.show([step])
        [stop] = run.stops([node], [token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        [node] = yield [(node, token)]
