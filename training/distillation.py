"""Distillation: drafters learn the model's distribution over the most frequent tokens."""

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
from training.corpus import Texts, is_new

CURVE_POINTS = 20
REPEATED_WEIGHT = 0.1  # weight in the loss of a position at which the text repeats itself


class Schedule(NamedTuple):
    """Batch size, number of steps and peak learning rate."""

    texts: int  # per step
    steps: int
    rate: float


class Batch(NamedTuple):
    """Some of the training texts."""

    tokens: Tensor  # (texts, length)
    states: Tensor  # (texts, length, layers, width)
    weights: Tensor  # (texts, length) of each position in the loss


def batches(parts: list[Texts], texts: int, seed: int) -> Iterator[Batch]:
    """Yield batches in random order, endlessly."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for which in torch.randperm(len(parts), generator=generator).tolist():
            order = torch.randperm(len(parts[which].tokens), generator=generator)
            for start in range(0, len(order) - texts + 1, texts):
                rows = order[start : start + texts].to(parts[which].tokens.device)
                tokens = parts[which].tokens[rows]
                yield Batch(tokens, parts[which].states[rows], position_weights(tokens))


def position_weights(tokens: Tensor) -> Tensor:
    """Return the weight of each position in the loss, (texts, length): low where texts repeat."""
    return torch.where(is_new(tokens), 1.0, REPEATED_WEIGHT)


def train(
    module: nn.Module, loss_of: Callable[[Batch], Tensor], data: Iterator[Batch], schedule: Schedule
) -> list[tuple[int, float]]:
    """Train with AdamW, warm-up and cosine decay; return the loss curve as (step, mean loss)."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, schedule.rate, betas=(0.9, 0.95), weight_decay=0.01)
    curve, losses, start = [], list[Tensor](), time.perf_counter()
    every = max(1, schedule.steps // CURVE_POINTS)
    for step in range(1, schedule.steps + 1):
        warm_up = min(1.0, step / (0.03 * schedule.steps + 1))
        cosine = 0.5 * (1 + math.cos(math.pi * step / schedule.steps))
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate * warm_up * (0.02 + 0.98 * cosine)
        with torch.autocast(weights[0].device.type, torch.bfloat16):
            loss = loss_of(next(data))
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if step % every == 0:
            curve.append((step, round(float(torch.stack(losses).mean()), 4)))
            losses.clear()
            seconds = time.perf_counter() - start
            print(f"  step {step:5}  loss {curve[-1][1]:.4f}  {seconds:.0f} s", flush=True)
    return curve


def distillation_loss(logits: Tensor, batch: Batch, output: Tensor) -> Tensor:
    """Return the cross entropy between the model's and the drafter's distributions.

    Both are over the tokens that ``output``, (kept, width), has rows for.
    """
    with torch.no_grad():
        target = linear(batch.states[:, :, -1], output).float().softmax(-1)
    cross_entropy = -(target * logits.float().log_softmax(-1)).sum(-1)  # (texts, length)
    return (cross_entropy * batch.weights).sum() / batch.weights.sum()


def draft_loss(draft: LlamaForCausalLM, output: Tensor) -> Callable[[Batch], Tensor]:
    """Return the loss function of a draft model."""
    states = draft_states(draft)
    return lambda batch: distillation_loss(
        linear(states(batch.tokens, batch.states), output), batch, output
    )


def draft_states(draft: LlamaForCausalLM) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from tokens, (texts, length), to a draft model's last hidden states.

    Its second argument, the target's states, is there for drafters that read them.
    """
    body: Any = draft.model

    def states_of(tokens: Tensor, target_states: Tensor) -> Tensor:
        last: Tensor = body(input_ids=tokens, use_cache=False).last_hidden_state
        return last

    return states_of


def heads_loss(heads: Heads) -> Callable[[Batch], Tensor]:
    """Return the mean loss of all heads, each given the true preceding tokens (teacher forcing)."""

    def loss(batch: Batch) -> Tensor:
        last = batch.tokens.shape[1] - heads.depth
        states, losses = batch.states[:, :last], []
        for depth in range(heads.depth):
            ahead = Batch(*(part[:, depth + 1 : depth + 1 + last] for part in batch))
            states = heads.state(depth, states, ahead.tokens)
            losses.append(distillation_loss(heads.logits(states), ahead, heads.output))
        return torch.stack(losses).mean()

    return loss


def draft_from_layers(model: PreTrainedModel, layers: list[int]) -> LlamaForCausalLM:
    """Return a draft model initialized with some of the model's layers; embeddings are shared."""
    config = type(model.config)(**{**model.config.to_dict(), "num_hidden_layers": len(layers)})
    with torch.device(model.device):
        draft = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers has no types here
    own: Any = draft.model
    theirs: Any = model.base_model
    for place, layer in enumerate(layers):
        own.layers[place].load_state_dict(theirs.layers[layer].state_dict())
    own.norm.load_state_dict(theirs.norm.state_dict())
    own.layers.float()
    own.norm.float()
    own.embed_tokens = theirs.embed_tokens
    draft.lm_head = nn.Identity()
    return draft
