"""Decoding by contrasting layers.

Chuang et al. 2023, "DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language
Models": log p(final layer) - log p(early layer), among tokens the final layer finds plausible. The
early layer is, at every step, the one whose distribution differs most from the final one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop.custom_generate import custom_generate
from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies.sample import Shaping

PLAUSIBLE = 0.1  # tokens less probable than this share of the most probable one are cut
TOLD = 10  # tokens the contrast leaves whose log-probabilities are told
RIVALS = 5  # tokens likeliest at the final layer that are told of, left or not
DEEP = 40  # models with more layers than this only contrast layers near one end
REACH = 20  # how many layers near the end those are


@dataclass(frozen=True)
class Params(Shaping):
    """Which layers may be contrasted, and whether to draw."""

    dola_layers: Any = setting(
        "low",
        "The layers to choose the early one from: low, high, or a list of layer numbers.",
        kind=object,
    )
    do_sample: bool = setting(False, "Draw from the contrast instead of taking its maximum.")

    def __post_init__(self) -> None:
        """Refuse what names no layers."""
        layers = self.dola_layers
        numbers = isinstance(layers, list | tuple) and all(type(layer) is int for layer in layers)
        if layers not in ("low", "high") and not (numbers and layers and min(layers) >= 0):
            raise PlaygroundError(
                f"dola_layers is {layers!r}; it must be 'low', 'high' or a list of layer numbers"
            )


class _Contrasted(NamedTuple):
    """What the layers say at a place, and how the one to contrast was chosen."""

    final: Tensor  # (vocab,) logits
    early: Tensor  # (layers, vocab)
    divergences: Tensor  # (layers,)
    chosen: int
    contrast: Tensor  # (vocab,)


def _contrasted(run: Run, node: Node, layers: list[int]) -> _Contrasted:
    final, early = run.logits([node])[0], run.exits(node, layers)
    divergences = _jensen_shannon(final, early)
    chosen = int(divergences.argmax())
    return _Contrasted(final, early, divergences, chosen, _contrast(final, early[chosen]))


def reshape(run: Run, node: Node, *, params: Params) -> tuple[str, Tensor]:
    """The contrast at a place where nothing is to be chosen."""
    layers = candidate_layers(params.dola_layers, run.layers, run.tied)
    return "dola", _contrasted(run, node, layers).contrast[None]


@strategy("dola", order=8, params=Params, decoder_only=True, reshape=reshape, num_beams=1)
def dola(run: Run, params: Params) -> Decoding:
    """Takes what the last layer knows and an earlier one did not yet know.

    Facts tend to be settled in later layers, so the difference favours them. Wants a
    repetition_penalty of about 1.2: the contrast alone likes to repeat itself.
    """
    layers = candidate_layers(params.dola_layers, run.layers, run.tied)
    node = run.root
    while True:
        final, early, divergences, chosen, contrast = _contrasted(run, node, layers)
        scores = run.scores([node], reshaped=("dola", contrast[None]))[0]
        token = int(run.draw(scores.softmax(-1))) if params.do_sample else int(scores.argmax())
        told = _told(token, scores, final)
        step = run.choose(
            node,
            token,
            layer=layers[chosen],
            divergences=dict(zip(map(str, layers), _rounded(divergences), strict=True)),
            candidates=_by_layer(told, torch.cat([early, final[None]])),
            cut=[told[place] for place in (scores[told] == -torch.inf).nonzero().flatten()],
        )
        run.show([step])
        [stop] = run.stops([node], [token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        [node] = yield [(node, token)]


generate = custom_generate(dola)


def candidate_layers(asked: str | list[int], last: int, tied: bool) -> list[int]:
    """The layers to choose from in a model of ``last`` layers; 0 is the embedding."""
    if not isinstance(asked, str):
        if below := [layer for layer in asked if layer < last]:
            return below
        raise PlaygroundError(f"dola_layers is {asked!r}; the model's last layer is {last}")
    # Where the output matrix is the embedding, leaving at once gives back the token that went in.
    first = 0 if not tied else min(2, last - 1)
    if asked == "high":
        return list(range(last // 2 if last <= DEEP else last - REACH, last, 2))
    # In a shallow model there may be none between the first one and the middle.
    return list(range(first, last // 2 if last <= DEEP else REACH, 2)) or [first]


def _jensen_shannon(final: Tensor, early: Tensor) -> Tensor:
    """How far each layer's distribution is from the final one, in nats: (layers,).

    As the paper's own code has it: the divergence of their mean from either, not of either from it.
    """
    log_p, log_q = final.log_softmax(-1), early.log_softmax(-1)  # (vocab,), (layers, vocab)
    mean = 0.5 * (log_p.exp() + log_q.exp())
    log_mean = mean.log()
    from_final = (mean * (log_mean - log_p)).nansum(-1)
    from_early = (mean * (log_mean - log_q)).nansum(-1)
    return 0.5 * (from_final + from_early)


def _contrast(final: Tensor, early: Tensor) -> Tensor:
    """log p(final) - log p(early) where the final layer finds a token plausible: (vocab,)."""
    log_p = final.log_softmax(-1)
    implausible = log_p < log_p.max() + math.log(PLAUSIBLE)
    return (log_p - early.log_softmax(-1)).masked_fill(implausible, -torch.inf)


def _told(chosen: int, scores: Tensor, final: Tensor) -> list[int]:
    """The best tokens by contrast, the chosen one, and the likeliest at the final layer."""
    kept = int((scores > -torch.inf).sum())
    best = scores.topk(min(TOLD, kept)).indices.tolist()
    likeliest = final.topk(min(RIVALS, len(final))).indices.tolist()
    return list(dict.fromkeys([*best, chosen, *likeliest]))


def _by_layer(tokens: Sequence[int], logits: Tensor) -> list[list[float]]:
    """Of each token its id and its log-probability at every layer, the final one last."""
    log_probs = logits.log_softmax(-1)[:, tokens].T  # (tokens, layers)
    return [[token, *_rounded(row)] for token, row in zip(tokens, log_probs, strict=True)]


def _rounded(numbers: Tensor) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]
