"""Similarity to the text so far: padding changes nothing, and the states grow with the text."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

from engine import similarity
from engine.accel.graph_calls import GraphCalls
from engine.similarity import TextStates


class Nodes:
    """A text of random hidden states, whose nodes have what `TextStates` reads."""

    def __init__(self, length: int) -> None:
        torch.manual_seed(0)
        self.states = torch.randn(length, 8)
        self.reads = 0
        self.evaluator: Any = SimpleNamespace(graph_calls=GraphCalls(), states=self._read)
        self._cells: list[Any] = [SimpleNamespace(parent=None, length=0)]
        for end in range(1, length + 1):
            self._cells.append(SimpleNamespace(parent=self._cells[-1], length=end))

    def _read(self, cell: Any) -> torch.Tensor:
        self.reads += 1
        return self.states[: cell.length].clone()

    def at(self, length: int) -> Any:
        """The node at the end of the first tokens."""
        hidden = self.states[None, None, length - 1]  # (nodes, layers, width)
        output_row = SimpleNamespace(output=SimpleNamespace(hidden=hidden, logits=hidden), row=0)
        return SimpleNamespace(
            cell=self._cells[length], output_row=output_row, evaluator=self.evaluator
        )


def expected(nodes: Nodes, length: int) -> torch.Tensor:
    return cosine_similarity(nodes.states[length : length + 1], nodes.states[:length])


def test_states_of_earlier_tokens_are_not_read_again() -> None:
    nodes = Nodes(1100)
    states = TextStates(nodes.at(3))
    for length in range(4, 1100):
        states = states.moved_to(nodes.at(length))
    assert states.length == 1099 and nodes.reads == 1
    found = states.similarity([nodes.at(1100)]).result()
    torch.testing.assert_close(found[0, :1099], expected(nodes, 1099))


def test_states_of_another_branch_are_read_again() -> None:
    nodes = Nodes(40)
    states = TextStates(nodes.at(30)).moved_to(nodes.at(12))
    assert states.length == 12 and nodes.reads == 2
    found = states.similarity([nodes.at(13)]).result()
    torch.testing.assert_close(found[0, :12], expected(nodes, 12))


def test_padding_after_the_text_changes_no_similarity(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(40)
    exact = TextStates(nodes.at(30)).similarity([nodes.at(31)]).result()
    padded = TextStates(nodes.at(30))
    padded._reserve(64)
    monkeypatch.setattr(similarity, "bucket", lambda size, least: 64)
    found = similarity.cosine(nodes.states[30:31], padded._states[:64])
    torch.testing.assert_close(found[:, :30], exact)
