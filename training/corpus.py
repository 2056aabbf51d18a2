"""Generates the texts that drafters are trained on, thousands at a time.

Each step generates one token of every text. Prompts are forced token by token in the same steps, so
that texts with prompts of different lengths stay in step. On a GPU a step is a CUDA graph.
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

BLOCK = 128  # the attended length grows in blocks, so that few graphs are needed
END = 2  # <|im_end|>
NGRAM = 3  # a repeated n-gram of this length counts as repetition
TEMPERATURES = ((0.0, 0.5), (0.5, 0.2), (0.8, 0.15), (1.0, 0.15))  # (temperature, share of texts)


class Texts(NamedTuple):
    """Generated texts with the model's hidden states."""

    tokens: Tensor  # (texts, length)
    states: Tensor  # (texts, length, layers, width) after some of the model's layers
    starts: Tensor  # (texts,) length of the prompt
    greedy: Tensor  # (texts,) whether the answer was decoded greedily


def is_new(tokens: Tensor) -> Tensor:
    """Mark the positions of texts, (texts, length), whose last n-gram has not occurred before.

    A small model decoded greedily soon repeats itself, and repetitions are easy to draft.
    """
    length = tokens.shape[1]
    ngrams = torch.nn.functional.pad(tokens, (NGRAM - 1, 0), value=-1).unfold(1, NGRAM, 1)
    same = (ngrams[:, :, None] == ngrams[:, None]).all(-1)  # (texts, length, length)
    before = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril(-1)
    return ~(same & before).any(-1)


class TextGenerator:
    """Generates a fixed number of texts of a fixed length at a time."""

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
        self._temperature = torch.zeros(texts, device=device)  # at the current token
        self._answer_temperature = torch.zeros(texts, device=device)  # after the request
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._graphs: dict[int, Any] = {}

    def generate(self, prompts: Sequence[Prompt]) -> Texts:
        """Continue every prompt at a random temperature; generated requests are sampled at 1."""
        shares = torch.tensor([share for _, share in TEMPERATURES])
        drawn = shares.multinomial(len(prompts), replacement=True, generator=self._generator)
        chosen = torch.tensor([temperature for temperature, _ in TEMPERATURES])[drawn]
        requests = torch.tensor([prompt.generates_request for prompt in prompts])
        self._answer_temperature.copy_(chosen)
        self._temperature.copy_(torch.where(requests, torch.ones_like(chosen), chosen))
        forced = torch.full(self._forced.shape, -1)
        for row, prompt in enumerate(prompts):
            forced[row, : len(prompt.ids)] = torch.tensor(prompt.ids)[: forced.shape[1]]
        self._forced.copy_(forced)
        self._tokens.zero_()
        self._tokens[:, 0] = self._forced[:, 0]
        self._position.zero_()
        for at in range(self._length):
            self._step(min(self._length, (at // BLOCK + 1) * BLOCK))
        starts = (forced >= 0).sum(1)
        greedy = self._answer_temperature == 0
        parts = (self._tokens[:, :-1], self._states, starts.to(self._position.device), greedy)
        return Texts(*(part.clone() for part in parts))

    def _step(self, visible: int) -> None:
        self._plan.visible = visible
        self._plan.slots = self._position
        if self._model.device.type != "cuda":
            self._forward()
        elif visible in self._graphs:
            self._graphs[visible].replay()
        else:
            self._forward()  # this step; it also loads the kernels before the capture
            changed = [self._position, self._temperature, self._tokens]
            self._graphs[visible] = _capture_graph(self._forward, changed)

    @torch.inference_mode()
    def _forward(self) -> None:
        """Generate the next token of every text."""
        tokens = self._tokens.index_select(1, self._position)  # (texts, 1)
        mask = torch.arange(self._plan.visible, device=self._position.device) <= self._position
        output = self._model.base_model(
            input_ids=tokens,
            position_ids=self._position[None].expand_as(tokens),
            attention_mask=mask[None, None, None],  # all texts have the same length
            past_key_values=self._cache,
            use_cache=True,
            output_hidden_states=True,
        )
        # (texts, 1, layers, width)
        states = torch.stack([output.hidden_states[layer] for layer in self._layers], dim=2)
        self._states.index_copy_(1, self._position, states)
        head: Any = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers has no types here
        logits = head(output.last_hidden_state[:, 0]).float()
        # Gumbel-max trick: the argmax of logits plus scaled Gumbel noise samples at a temperature.
        noise = torch.empty_like(logits).exponential_().log_().neg_()
        drawn = logits.add_(noise.mul_(self._temperature[:, None])).argmax(-1)
        after = self._position + 1
        forced = self._forced.index_select(1, after)[:, 0]
        self._tokens.index_copy_(1, after, torch.where(forced < 0, drawn, forced)[:, None])
        ended = (forced < 0) & (drawn == END)
        after_end = torch.where(ended, self._answer_temperature, self._temperature)
        self._temperature.copy_(after_end)
        self._position.add_(1)


def _capture_graph(work: Callable[[], None], changed: Sequence[Tensor]) -> Any:
    """Capture a CUDA graph; the tensors that the capture changes are restored."""
    before = [tensor.clone() for tensor in changed]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for tensor, old in zip(changed, before, strict=True):
        tensor.copy_(old)
    return graph
