"""Beam search whose candidates are drawn instead of ranked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.run import Run
from engine.strategy import Decoding, strategy
from strategies._beams import Beams
from strategies.beam_search import search
from strategies.sample import Shaping


@dataclass(frozen=True)
class Params(Shaping, Beams):
    """The settings of beam search and those of sampling."""


@strategy("beam_sample", order=4, params=Params, do_sample=True)
def beam_sample(run: Run, params: Params) -> Decoding:
    """Keeps several beginnings as beam search does, but draws which continuations get a place.

    Less dull than beam search, more coherent than plain sampling. Equal seeds give equal draws.
    """

    def drawn(sums: Tensor, count: int) -> Tensor:
        return run.draw(sums.softmax(-1)[None], count)[0].to(sums.device)

    return search(run, params, drawn)
