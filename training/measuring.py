"""How many drafted tokens the model would keep, on texts that no draft has learnt from.

Knows what acceptance is. Refuses to know how drafts came about.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from engine.drafting.heads import Heads
from training.writing import Written, fresh

TEXTS = 64  # looked at together
BEST = 4  # of the heads' candidates


class Mean:
    """Of values at some places, all counted alike."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, values: Tensor, where: Tensor) -> None:
        """Count some in."""
        self._sum += float((values.float() * where).sum())
        self._count += int(where.sum())

    @property
    def rounded(self) -> float:
        """The mean so far."""
        return round(self._sum / max(1, self._count), 4)


@torch.inference_mode()
def acceptance(
    own: Callable[[Tensor, Tensor], Tensor], kept: Tensor, output: Tensor, written: Written
) -> dict[str, float]:
    """Of the tokens a draft would write that makes states of its ``own`` of tokens and the model's
    states: those the model agrees with.

    ``greedy`` counts equal most probable tokens where texts are greedy, ``new`` the same where they
    do not repeat themselves; ``sampled`` is the chance that a drawn token is kept, which is what
    the two distributions have in common.
    """
    greedy, new, sampled, covered = Mean(), Mean(), Mean(), Mean()
    for at in range(0, len(written.tokens), TEXTS):
        tokens, states, starts, is_greedy = (part[at : at + TEXTS] for part in written)
        with torch.autocast(tokens.device.type, torch.bfloat16):
            q = linear(own(tokens, states), output[kept]).float().softmax(-1)
            p = linear(states[:, :, -1], output).float().softmax(-1)
        answer = torch.arange(tokens.shape[1], device=tokens.device) >= starts[:, None]
        right = kept[q.argmax(-1)] == p.argmax(-1)
        greedy.add(right, answer & is_greedy[:, None])
        new.add(right, answer & is_greedy[:, None] & fresh(tokens))
        sampled.add(torch.minimum(p[..., kept], q).sum(-1), answer)
        covered.add(torch.isin(p.argmax(-1), kept), answer)
    means = {"greedy": greedy, "new": new, "sampled": sampled, "covered": covered}
    return {name: mean.rounded for name, mean in means.items()}


@torch.inference_mode()
def heads_acceptance(heads: Heads, output: Tensor, written: Written) -> dict[str, list[float]]:
    """Of each head, behind the right tokens and where texts do not repeat themselves: how often its
    best candidate is what the model takes, and how often that is one of its best few."""
    best, few = ([Mean() for _ in range(heads.depth)] for _ in range(2))
    for at in range(0, len(written.tokens), TEXTS):
        tokens, states, starts, is_greedy = (part[at : at + TEXTS] for part in written)
        last = tokens.shape[1] - heads.depth
        answer = torch.arange(last, device=tokens.device) >= starts[:, None]
        answer &= is_greedy[:, None]
        new = fresh(tokens)
        own = states[:, :last]
        with torch.autocast(tokens.device.type, torch.bfloat16):
            for depth in range(heads.depth):
                ahead = slice(depth + 1, depth + 1 + last)
                own = heads.state(depth, own, tokens[:, ahead])
                wanted = linear(states[:, ahead, -1], output).argmax(-1)
                drafted = heads.kept[heads.logits(own).topk(BEST).indices]
                hits = drafted == wanted[..., None]
                best[depth].add(hits[..., 0], answer & new[:, ahead])
                few[depth].add(hits.any(-1), answer & new[:, ahead])
    return {"best": [one.rounded for one in best], f"best_{BEST}": [one.rounded for one in few]}
