"""Draws are torch's own: the same tokens, and the same ones after them."""

import pytest
import torch

from engine.sampling import NOTHING, default_generator, drawn


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("shape", [(3000,), (1, 3000), (4, 3000)])
@pytest.mark.parametrize("count", [1, 6])
def test_draws_are_those_of_multinomial(shape: tuple[int, ...], count: int) -> None:
    probs = (torch.randn(shape, generator=generator()) * 4).softmax(-1)
    probs[..., 100:2000] = 0.0
    ours, theirs = generator(), generator()
    for _ in range(20):
        expected = torch.multinomial(probs, count, generator=theirs)
        assert drawn(probs, count, ours).tolist() == expected.tolist()
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_nothing_is_drawn_from_nothing() -> None:
    cut = torch.full((2, 50), -torch.inf)
    cut[0, 7] = 0.0
    assert drawn(cut.softmax(-1), 1, generator()).tolist() == [[7], [NOTHING]]
    assert drawn(torch.zeros(50), 1, generator()).tolist() == [NOTHING]


def test_on_a_cpu_set_seed_seeds_the_default_generator() -> None:
    torch.manual_seed(3)
    assert default_generator(torch.device("cpu")).initial_seed() == 3
