"""DoLa: decoding by contrasting layers.

Chuang et al. 2023, "DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language
Models".
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
from strategies.sample import SamplingParams

ALPHA = 0.1  # tokens less probable than this fraction of the most probable one are cut
MAX_RECORDED = 10  # tokens, the best by contrast, whose log-probabilities are recorded
MAX_RIVALS = 5  # tokens, the most probable at the final layer, that are recorded as well
DEEP = 40  # a model with more layers than this contrasts only layers near one end,
NEAR = 20  # this many of them


@dataclass(frozen=True)
class Params(SamplingParams):
    """The candidate layers, and whether to sample."""

    dola_layers: Any = setting(
        "low",
        "The layers to choose the early layer from: low, high, or a list of layer numbers.",
        kind=object,
    )
    do_sample: bool = setting(False, "Sample from the contrast instead of taking its maximum.")

    def __post_init__(self) -> None:
        """Reject what names no layers."""
        layers = self.dola_layers
        numbers = isinstance(layers, list | tuple) and all(type(layer) is int for layer in layers)
        if layers not in ("low", "high") and not (numbers and layers and min(layers) >= 0):
            raise PlaygroundError(
                f"dola_layers is {layers!r}; it must be 'low', 'high' or a list of layer numbers"
            )


class Contrast(NamedTuple):
    """The final layer contrasted with the early one at a node."""

    final: Tensor  # (vocab,) logits of the final layer
    early: Tensor  # (layers, vocab) logits of the candidate layers
    divergences: Tensor  # (layers,) of the candidate layers from the final one
    premature: int  # the index of the early layer
    scores: Tensor  # (vocab,)


def contrast(run: Run, node: Node, layers: list[int]) -> Contrast:
    """Contrast the final layer N with the candidate layer that differs most from it."""
    final, early = run.logits([node])[0], run.early_logits(node, layers)
    # M = argmax over j of JSD(q_N || q_j)
    divergences = jensen_shannon(final, early)
    premature = int(divergences.argmax())
    # F(x) = log q_N(x) - log q_M(x) for x with q_N(x) >= α max q_N, else -∞
    log_q = final.log_softmax(-1)
    implausible = log_q < log_q.max() + math.log(ALPHA)
    scores = (log_q - early[premature].log_softmax(-1)).masked_fill(implausible, -torch.inf)
    return Contrast(final, early, divergences, premature, scores)


def jensen_shannon(final: Tensor, early: Tensor) -> Tensor:
    """The divergence of each layer's distribution from the final one, in nats: (layers,).

    As in the paper's own code: the divergence of their mean from either, not of either from it.
    """
    log_p, log_q = final.log_softmax(-1), early.log_softmax(-1)  # (vocab,), (layers, vocab)
    mean = 0.5 * (log_p.exp() + log_q.exp())
    log_mean = mean.log()
    from_final = (mean * (log_mean - log_p)).nansum(-1)
    from_early = (mean * (log_mean - log_q)).nansum(-1)
    return 0.5 * (from_final + from_early)


def adjust(run: Run, node: Node, *, params: Params) -> tuple[str, Tensor]:
    """The contrast at a node of a text that is only scored."""
    layers = candidate_layers(params.dola_layers, run.layers, run.tied)
    return "dola", contrast(run, node, layers).scores[None]


@strategy("dola", order=8, params=Params, decoder_only=True, adjust=adjust, num_beams=1)
def dola(run: Run, params: Params) -> Decoding:
    """Contrasts the last layer with an earlier one and takes what only the last one predicts.

    Facts tend to emerge in later layers, so the difference favors them. Use it with a
    repetition_penalty of about 1.2: the contrast alone tends to repeat itself.
    """
    layers = candidate_layers(params.dola_layers, run.layers, run.tied)
    node = run.root
    while True:
        found = contrast(run, node, layers)
        scores = run.scores([node], stage=("dola", found.scores[None]))[0]  # (vocab,)
        token = _token(run, node, scores, params)
        recorded = _recorded(token, scores, found.final)
        by_layer = _by_layer(recorded, torch.cat([found.early, found.final[None]]))
        of_token = by_layer[recorded.index(token)]  # the id, then the log-probabilities
        step = run.choose(
            node,
            token,
            layer=layers[found.premature],
            last=of_token[-1],
            early=of_token[1 + found.premature],
            divergences=dict(zip(map(str, layers), _rounded(found.divergences), strict=True)),
            candidates=by_layer,
            cut=[recorded[at] for at in (scores[recorded] == -torch.inf).nonzero().flatten()],
        )
        run.show([step])
        [stop] = run.stops([node], [token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        [node] = yield [(node, token)]


generate = custom_generate(dola)


def _token(run: Run, node: Node, scores: Tensor, params: Params) -> int:
    if params.do_sample:
        return int(run.draw(scores.softmax(-1), at=[node]))
    return int(scores.argmax())


def candidate_layers(chosen: str | list[int], last: int, tied: bool) -> list[int]:
    """The candidate layers of a model with ``last`` layers; 0 is the embedding."""
    if not isinstance(chosen, str):
        if below := [layer for layer in chosen if layer < last]:
            return below
        raise PlaygroundError(f"dola_layers is {chosen!r}; the model's last layer is {last}")
    # With tied embeddings, the embedding itself predicts the token that was read.
    first = 0 if not tied else min(2, last - 1)
    if chosen == "high":
        return list(range(last // 2 if last <= DEEP else last - NEAR, last, 2))
    # A shallow model may have no layer between the first one and the middle.
    return list(range(first, last // 2 if last <= DEEP else NEAR, 2)) or [first]


def _recorded(chosen: int, scores: Tensor, final: Tensor) -> list[int]:
    """The best tokens by contrast, the chosen one, and the most probable at the final layer."""
    kept = int((scores > -torch.inf).sum())
    best = scores.topk(min(MAX_RECORDED, kept)).indices.tolist()
    rivals = final.topk(min(MAX_RIVALS, len(final))).indices.tolist()
    return list(dict.fromkeys([*best, chosen, *rivals]))


def _by_layer(tokens: Sequence[int], logits: Tensor) -> list[list[float]]:
    """The id of each token and its log-probability at every layer, the final one last."""
    log_probs = logits.log_softmax(-1)[:, tokens].T  # (tokens, layers)
    return [[token, *_rounded(row)] for token, row in zip(tokens, log_probs, strict=True)]


def _rounded(numbers: Tensor) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]
