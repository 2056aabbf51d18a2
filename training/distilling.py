"""Drafts learn to say what the model says: its distributions over the commonest tokens.

Knows the losses and the loop. Refuses to know where texts come from and what is kept of the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import LlamaForCausalLM, PreTrainedModel

from engine.drafting.heads import Heads
from training.writing import Written, fresh

TOLD = 20  # points of the loss curve that are kept
REPEATED = 0.1  # what a place counts at which a text repeats itself


class Course(NamedTuple):
    """How long and how fast to learn."""

    texts: int  # in a step
    steps: int
    rate: float


class Batch(NamedTuple):
    """Some of the texts that were written."""

    tokens: Tensor  # (texts, length)
    states: Tensor  # (texts, length, layers, width)
    weights: Tensor  # (texts, length) how much it matters what is said there


def batches(written: list[Written], texts: int, seed: int) -> Iterator[Batch]:
    """Texts in random order, over and over."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for which in torch.randperm(len(written), generator=generator).tolist():
            order = torch.randperm(len(written[which].tokens), generator=generator)
            for at in range(0, len(order) - texts + 1, texts):
                rows = order[at : at + texts].to(written[which].tokens.device)
                tokens = written[which].tokens[rows]
                yield Batch(tokens, written[which].states[rows], worth(tokens))


def worth(tokens: Tensor) -> Tensor:
    """How much to learn from each place of texts, (texts, length): what is new counts."""
    return torch.where(fresh(tokens), 1.0, REPEATED)


def learn(
    module: nn.Module, loss_of: Callable[[Batch], Tensor], given: Iterator[Batch], course: Course
) -> list[tuple[int, float]]:
    """Follow the gradient; gives the loss curve, a mean for every part of the way."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, course.rate, betas=(0.9, 0.95), weight_decay=0.01)
    curve, part, since = [], list[Tensor](), time.perf_counter()
    every = max(1, course.steps // TOLD)
    for step in range(1, course.steps + 1):
        warm = min(1.0, step / (0.03 * course.steps + 1))
        cool = 0.5 * (1 + math.cos(math.pi * step / course.steps))
        for group in optimizer.param_groups:
            group["lr"] = course.rate * warm * (0.02 + 0.98 * cool)
        with torch.autocast(weights[0].device.type, torch.bfloat16):
            loss = loss_of(next(given))
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        part.append(loss.detach())
        if step % every == 0:
            curve.append((step, round(float(torch.stack(part).mean()), 4)))
            part.clear()
            seconds = time.perf_counter() - since
            print(f"  step {step:5}  loss {curve[-1][1]:.4f}  {seconds:.0f} s", flush=True)
    return curve


def unlike(logits: Tensor, batch: Batch, output: Tensor) -> Tensor:
    """The cross entropy to what the model itself says at its states, over the kept tokens."""
    with torch.no_grad():
        wanted = linear(batch.states[:, :, -1], output).float().softmax(-1)
    apart = -(wanted * logits.float().log_softmax(-1)).sum(-1)  # (texts, length)
    return (apart * batch.weights).sum() / batch.weights.sum()


def draft_loss(draft: LlamaForCausalLM, output: Tensor) -> Callable[[Batch], Tensor]:
    """How unlike the model a draft model is."""

    own = states_of(draft)
    return lambda batch: unlike(linear(own(batch.tokens, batch.states), output), batch, output)


def states_of(draft: LlamaForCausalLM) -> Callable[[Tensor, Tensor], Tensor]:
    """What a draft model makes of tokens, (texts, length), and needs none of the model's states."""
    body: Any = draft.model

    def own(tokens: Tensor, states: Tensor) -> Tensor:
        last: Tensor = body(input_ids=tokens, use_cache=False).last_hidden_state
        return last

    return own


def heads_loss(heads: Heads) -> Callable[[Batch], Tensor]:
    """How unlike the model the heads are, each behind the tokens that were really written."""

    def loss(batch: Batch) -> Tensor:
        last = batch.tokens.shape[1] - heads.depth
        own, losses = batch.states[:, :last], []
        for depth in range(heads.depth):
            ahead = Batch(*(part[:, depth + 1 : depth + 1 + last] for part in batch))
            own = heads.state(depth, own, ahead.tokens)
            losses.append(unlike(heads.logits(own), ahead, heads.output))
        return torch.stack(losses).mean()

    return loss


def small(model: PreTrainedModel, layers: list[int]) -> LlamaForCausalLM:
    """A draft model that begins as some of the model's own layers; embeddings stay the model's."""
    config = type(model.config)(**{**model.config.to_dict(), "num_hidden_layers": len(layers)})
    with torch.device(model.device):
        draft = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers has no types here
    own: Any = draft.model
    theirs: Any = model.base_model
    for at, layer in enumerate(layers):
        own.layers[at].load_state_dict(theirs.layers[layer].state_dict())
    own.norm.load_state_dict(theirs.norm.state_dict())
    own.layers.float()
    own.norm.float()
    own.embed_tokens = theirs.embed_tokens
    draft.lm_head = nn.Identity()
    return draft
