"""What is made when somebody looks at it: once, and then it is what it would have been."""

import copy
import pickle

import pytest

from engine.trace.lazy_tuple import LazyTuple


class Making:
    """Makes the same three things, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[str]:
        self.times += 1
        return ["a", "b", "c"]


@pytest.fixture
def making() -> Making:
    return Making()


def test_nothing_is_made_before_somebody_looks(making: Making) -> None:
    later = LazyTuple(making, 3)
    assert len(later) == 3 and later
    assert making.times == 0


@pytest.mark.parametrize(
    ("look", "seen"),
    [
        (len, 3),
        (list, ["a", "b", "c"]),
        (lambda later: later[1], "b"),
        (lambda later: later[-2:], ("b", "c")),
        (lambda later: "c" in later, True),
        (lambda later: later == ("a", "b", "c"), True),
        (lambda later: later == ("a", "b"), False),
        (lambda later: hash(later) == hash(("a", "b", "c")), True),
        (repr, "('a', 'b', 'c')"),
    ],
)
def test_it_is_made_once_whoever_looks(look, seen, making: Making) -> None:
    later = LazyTuple(making)
    assert look(later) == seen and look(later) == seen
    assert making.times == 1


@pytest.mark.parametrize("elsewhere", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_elsewhere_it_is_a_tuple(elsewhere, making: Making) -> None:
    assert elsewhere(LazyTuple(making)) == ("a", "b", "c")
    assert type(elsewhere(LazyTuple(making))) is tuple
