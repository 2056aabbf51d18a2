"""Acceptance rates of drafters on texts from held-out prompts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from engine.drafting.heads import Heads
from training.corpus import Texts, is_new

BATCH = 64  # texts
TOP = 4  # candidates of a head


class Mean:
    """The mean of values at selected positions."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, values: Tensor, where: Tensor) -> None:
        """Add the values at the positions that the mask ``where`` selects."""
        self._sum += float((values.float() * where).sum())
        self._count += int(where.sum())

    @property
    def rounded(self) -> float:
        """The mean so far, to four digits."""
        return round(self._sum / max(1, self._count), 4)


@torch.inference_mode()
def acceptance(
    states_of: Callable[[Tensor, Tensor], Tensor], kept: Tensor, output: Tensor, texts: Texts
) -> dict[str, float]:
    """Measure how often the model agrees with a drafter.

    ``states_of`` maps tokens and the model's states to the drafter's states. ``greedy`` is the
    share of equal most probable tokens in greedy texts, ``new`` the same where texts do not repeat
    themselves, ``sampled`` the probability that speculative sampling accepts a token (the overlap
    of both distributions), ``covered`` the share of greedy tokens in the drafter's vocabulary.
    """
    greedy, new, sampled, covered = Mean(), Mean(), Mean(), Mean()
    for start in range(0, len(texts.tokens), BATCH):
        tokens, states, starts, is_greedy = (part[start : start + BATCH] for part in texts)
        with torch.autocast(tokens.device.type, torch.bfloat16):
            q = linear(states_of(tokens, states), output[kept]).float().softmax(-1)
            p = linear(states[:, :, -1], output).float().softmax(-1)
        answer = torch.arange(tokens.shape[1], device=tokens.device) >= starts[:, None]
        equal = kept[q.argmax(-1)] == p.argmax(-1)
        greedy.add(equal, answer & is_greedy[:, None])
        new.add(equal, answer & is_greedy[:, None] & is_new(tokens))
        sampled.add(torch.minimum(p[..., kept], q).sum(-1), answer)
        covered.add(torch.isin(p.argmax(-1), kept), answer)
    means = {"greedy": greedy, "new": new, "sampled": sampled, "covered": covered}
    return {name: mean.rounded for name, mean in means.items()}


@torch.inference_mode()
def heads_acceptance(heads: Heads, output: Tensor, texts: Texts) -> dict[str, list[float]]:
    """Measure each head after the true tokens, where greedy texts do not repeat themselves.

    ``best`` is how often the head's best candidate is the model's choice, ``best_4`` how often one
    of its best four is.
    """
    best, top = ([Mean() for _ in range(heads.depth)] for _ in range(2))
    for start in range(0, len(texts.tokens), BATCH):
        tokens, states, starts, is_greedy = (part[start : start + BATCH] for part in texts)
        last = tokens.shape[1] - heads.depth
        answer = torch.arange(last, device=tokens.device) >= starts[:, None]
        answer &= is_greedy[:, None]
        new = is_new(tokens)
        head_states = states[:, :last]
        with torch.autocast(tokens.device.type, torch.bfloat16):
            for depth in range(heads.depth):
                ahead = slice(depth + 1, depth + 1 + last)
                head_states = heads.state(depth, head_states, tokens[:, ahead])
                target = linear(states[:, ahead, -1], output).argmax(-1)
                drafted = heads.kept[heads.logits(head_states).topk(TOP).indices]
                equal = drafted == target[..., None]
                best[depth].add(equal[..., 0], answer & new[:, ahead])
                top[depth].add(equal.any(-1), answer & new[:, ahead])
    return {"best": [mean.rounded for mean in best], f"best_{TOP}": [mean.rounded for mean in top]}
