"""Cosine similarity of hidden states to those of the text so far."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from engine.accel.graphs import bucket
from engine.accel.host_future import HostFuture
from engine.trie.backend import parts
from engine.trie.node import Node

CAPACITY = 512  # tokens that there is room for at first


class TextStates:
    """The last hidden state at every token of a text that grows token by token."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._states = node.evaluator.states(node.cell)  # (capacity, width)
        self.length = len(self._states)

    def moved_to(self, node: Node) -> TextStates:
        """The states down to another node; cheap where that is a child of the last one."""
        if node.cell is self._node.cell:
            return self
        if node.cell.parent is not self._node.cell:
            return TextStates(node)
        if self.length == len(self._states):
            self._reserve(bucket(self.length + 1, CAPACITY))
        self._states[self.length] = last_states([node])[0]
        self._node, self.length = node, self.length + 1
        return self

    def similarity(self, nodes: Sequence[Node]) -> HostFuture:
        """The cosine similarity of the last hidden state at each node to that at every token:
        (nodes, length or more), where columns from ``length`` on are padding."""
        size = self.length
        if self._states.device.type == "cuda":
            size = bucket(size, CAPACITY)  # shapes repeat, so that CUDA graphs can be replayed
            self._reserve(size)
        calls = self._node.evaluator.graph_calls
        return calls(cosine, last_states(nodes), self._states[:size])

    def _reserve(self, capacity: int) -> None:
        if capacity > len(self._states):
            missing = capacity - len(self._states)
            padding = self._states.new_zeros(missing, *self._states.shape[1:])
            self._states = torch.cat([self._states, padding])


def last_states(nodes: Sequence[Node]) -> Tensor:
    """The hidden states after the model's last layer: (nodes, width)."""
    [hidden] = parts([node.output_row for node in nodes], "hidden")  # (nodes, 1 + layers, width)
    return hidden[:, -1]


def cosine(states: Tensor, context: Tensor) -> Tensor:
    """The cosine similarity of each state to each one of a context: (states, context)."""
    return normalize(states, dim=-1) @ normalize(context, dim=-1).T
