"""Sampling from the model's distribution, changed by transformers' own processors.

Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (top_p); Fan et al. 2018
(top_k); Nguyen et al. 2024 (min_p); Meister et al. 2023 (typical_p); Hewitt et al. 2022 (epsilon
and eta cut-offs); Potraghloo et al. 2025 (top_h).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from engine.run import Pick, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from engine.trace import Stop

_warper = partial(setting, None, only_with="do_sample")


@dataclass(frozen=True)
class SamplingParams:
    """How the distribution is changed before a token is drawn."""

    temperature: float = _warper(
        "Below 1 sharpens the distribution, above 1 flattens it.",
        low=0.001,
        high=100.0,
    )
    top_k: int = _warper(
        "Keep this many of the most probable tokens; 0 keeps all.", kind=int, low=0
    )
    top_p: float = _warper(
        "Keep the most probable tokens until their probabilities add up to this.",
        low=0.0,
        high=1.0,
    )
    min_p: float | None = _warper(
        "Drop tokens less probable than this fraction of the most probable token.",
        low=0.0,
        high=1.0,
    )
    typical_p: float = _warper(
        "Keep the tokens whose surprisal is closest to the entropy, until their probabilities "
        "add up to this.",
        low=0.0,
        high=1.0,
        open_low=True,
    )
    epsilon_cutoff: float = _warper(
        "Drop tokens less probable than this; 0 drops none.", low=0.0, high=0.999
    )
    eta_cutoff: float = _warper(
        "Drop tokens less probable than a threshold that falls with the entropy; 0 drops none.",
        low=0.0,
        high=0.999,
    )
    top_h: float | None = _warper(
        "Keep the most probable tokens while their entropy stays below this fraction of the "
        "whole distribution's.",
        low=0.0,
        high=1.0,
        open_low=True,
    )


@dataclass(frozen=True)
class Params(SamplingParams):
    """The settings of sampling."""

    num_return_sequences: int = setting(
        None, "The number of texts to sample.", kind=int, low=1, limit="rows"
    )


@strategy("sample", order=2, params=Params, do_sample=True, num_beams=1)
def sample(run: Run, params: Params) -> Decoding:
    """Samples each token from the model's distribution.

    The settings cut off improbable tokens and sharpen or flatten the rest. Equal seeds give equal
    texts.
    """
    rows = [run.root] * params.num_return_sequences
    ends: dict[int, tuple[int, None, Stop]] = {}  # by row: its last step and stopping rule
    while True:
        # As in `generate`, ended rows are sampled as well: the others' draws depend on it.
        tokens = yield from run.sample(rows)
        going = [row for row in range(len(rows)) if row not in ends]
        steps = run.record([Pick(rows[row], tokens[row]) for row in going])
        stops = run.stops([rows[row] for row in going], [tokens[row] for row in going])
        for row, step, stop in zip(going, steps, stops, strict=True):
            if stop:
                ends[row] = (step, None, stop)
        tips = dict(zip(going, steps, strict=True))
        run.show([tips[row] if row in tips else ends[row][0] for row in range(len(rows))])
        if len(ends) == len(rows):
            return run.finish([ends[row] for row in range(len(rows))], ends[0][2])
        going = [row for row in going if row not in ends]
        children = yield [(rows[row], tokens[row]) for row in going]
        after = dict(zip(going, children, strict=True))
        rows = [
            after[row] if row in after else node.padded(run.pad) for row, node in enumerate(rows)
        ]
