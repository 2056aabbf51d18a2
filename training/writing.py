"""The model writes the texts its drafts learn from, thousands at a time.

One step writes a token of every text at once, prompts included: they are forced upon the texts, so
that none has to wait for another. On a GPU the step is recorded as a graph. Knows how to write a
lot quickly. Refuses to know what is learnt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.trie.cache_layer import Plan, PoolLayer
from training.prompts import Prompt

BLOCK = 128  # the visible part of the texts grows by this much
END = 2  # <|im_end|>
WORDS = 3  # tokens in a row that make a repetition
TEMPERATURES = ((0.0, 0.5), (0.5, 0.2), (0.8, 0.15), (1.0, 0.15))  # and how often each is taken


class Written(NamedTuple):
    """Texts, with what the model knew at each of their tokens."""

    tokens: Tensor  # (texts, length)
    states: Tensor  # (texts, length, layers, width) the model's states after some of its layers
    starts: Tensor  # (texts,) how long the prompt was
    greedy: Tensor  # (texts,) whether the answer is what the model finds most probable throughout


def fresh(tokens: Tensor) -> Tensor:
    """Where texts, (texts, length), say something new: the same words have not stood there before.

    A small model that always takes the most probable token soon goes round in circles, and to draft
    those is no art.
    """
    length = tokens.shape[1]
    # (texts, ends, sizes) the last few tokens at every place, and whether they occurred before
    ends = torch.nn.functional.pad(tokens, (WORDS - 1, 0), value=-1).unfold(1, WORDS, 1)
    same = (ends[:, :, None] == ends[:, None]).all(-1)  # (texts, length, length)
    before = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril(-1)
    return ~(same & before).any(-1)


class Writer:
    """Writes texts of one length, so many at a time."""

    def __init__(
        self, model: PreTrainedModel, texts: int, length: int, layers: Sequence[int], seed: int
    ) -> None:
        self._model = model
        self._length = length
        device = model.device
        self._plan = Plan(length)
        every = range(model.config.num_hidden_layers)
        self._cache = Cache(layers=[PoolLayer(self._plan) for _ in every])
        self._layers = layers
        self._generator = torch.Generator().manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        torch.manual_seed(seed)
        size = (texts, length, len(layers), model.config.hidden_size)
        self._tokens = torch.zeros(texts, length + 1, dtype=torch.long, device=device)
        self._forced = torch.full_like(self._tokens, -1)
        self._states = torch.zeros(size, dtype=model.dtype, device=device)
        self._heat = torch.zeros(texts, device=device)  # the temperature now
        self._later = torch.zeros(texts, device=device)  # and once the request has ended
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._graphs: dict[int, Any] = {}

    def write(self, prompts: Sequence[Prompt]) -> Written:
        """Continue every prompt, at one of the temperatures."""
        chances = torch.tensor([share for _, share in TEMPERATURES])
        drawn = chances.multinomial(len(prompts), replacement=True, generator=self._generator)
        heats = torch.tensor([heat for heat, _ in TEMPERATURES])[drawn]
        made_up = torch.tensor([prompt.made_up for prompt in prompts])
        self._later.copy_(heats)
        self._heat.copy_(torch.where(made_up, torch.ones_like(heats), heats))
        forced = torch.full(self._forced.shape, -1)
        for row, prompt in enumerate(prompts):
            forced[row, : len(prompt.ids)] = torch.tensor(prompt.ids)[: forced.shape[1]]
        self._forced.copy_(forced)
        self._tokens.zero_()
        self._tokens[:, 0] = self._forced[:, 0]
        self._at.zero_()
        for at in range(self._length):
            self._step(min(self._length, (at // BLOCK + 1) * BLOCK))
        starts = (forced >= 0).sum(1)
        own = (self._tokens[:, :-1], self._states, starts.to(self._at.device), self._later == 0)
        return Written(*(part.clone() for part in own))

    def _step(self, visible: int) -> None:
        self._plan.visible = visible
        self._plan.slots = self._at
        if self._model.device.type != "cuda":
            self._work()
        elif visible in self._graphs:
            self._graphs[visible].replay()
        else:
            self._work()  # loads the kernels, and is this step
            self._graphs[visible] = _recorded(self._work, [self._at, self._heat, self._tokens])

    @torch.inference_mode()
    def _work(self) -> None:
        """Write the next token of every text."""
        tokens = self._tokens.index_select(1, self._at)  # (texts, 1)
        mask = torch.arange(self._plan.visible, device=self._at.device) <= self._at
        output = self._model.base_model(
            input_ids=tokens,
            position_ids=self._at[None].expand_as(tokens),
            attention_mask=mask[None, None, None],  # all texts are as long
            past_key_values=self._cache,
            use_cache=True,
            output_hidden_states=True,
        )
        # (texts, 1, layers, width)
        states = torch.stack([output.hidden_states[layer] for layer in self._layers], dim=2)
        self._states.index_copy_(1, self._at, states)
        head: Any = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
        logits = head(output.last_hidden_state[:, 0]).float()
        # The largest of logits with Gumbel noise is a draw; without noise it is the most probable.
        noise = torch.empty_like(logits).exponential_().log_().neg_()
        drawn = logits.add_(noise.mul_(self._heat[:, None])).argmax(-1)
        after = self._at + 1
        forced = self._forced.index_select(1, after)[:, 0]
        self._tokens.index_copy_(1, after, torch.where(forced < 0, drawn, forced)[:, None])
        ended = (forced < 0) & (drawn == END)
        self._heat.copy_(torch.where(ended, self._later, self._heat))
        self._at.add_(1)


def _recorded(work: Callable[[], None], changed: Sequence[Tensor]) -> Any:
    """The work as a CUDA graph; what it would change by being recorded stays as it was."""
    before = [tensor.clone() for tensor in changed]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for tensor, old in zip(changed, before, strict=True):
        tensor.copy_(old)
    return graph
