"""Draws equal those of `torch.multinomial`, one after the other."""

import pytest
import torch

from engine.sampling import IMPOSSIBLE, default_generator, multinomial


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("shape", [(3000,), (1, 3000), (4, 3000)])
@pytest.mark.parametrize("count", [1, 6])
def test_draws_equal_those_of_torch_multinomial(shape: tuple[int, ...], count: int) -> None:
    probs = (torch.randn(shape, generator=generator()) * 4).softmax(-1)
    probs[..., 100:2000] = 0.0
    ours, theirs = generator(), generator()
    for _ in range(20):
        expected = torch.multinomial(probs, count, generator=theirs)
        assert multinomial(probs, count, ours).tokens.tolist() == expected.tolist()
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("count", [1, 6])
def test_the_largest_quotients_of_probability_and_random_number_win(count: int) -> None:
    probs = (torch.randn(4, 3000, generator=generator()) * 4).softmax(-1)
    tokens, noise = multinomial(probs, count, generator())
    assert (probs / noise).topk(count).indices.tolist() == tokens.tolist()
    assert torch.equal(noise, torch.empty(4, 3000).exponential_(generator=generator()))


def test_a_row_without_a_possible_token_draws_none() -> None:
    cut = torch.full((2, 50), -torch.inf)
    cut[0, 7] = 0.0
    assert multinomial(cut.softmax(-1), 1, generator()).tokens.tolist() == [[7], [IMPOSSIBLE]]
    assert multinomial(torch.zeros(50), 1, generator()).tokens.tolist() == [IMPOSSIBLE]


def test_set_seed_seeds_the_default_generator_of_the_cpu() -> None:
    torch.manual_seed(3)
    assert default_generator(torch.device("cpu")).initial_seed() == 3
