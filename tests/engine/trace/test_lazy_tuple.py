"""A lazy tuple builds its items once, on first access, and equals the plain tuple."""

import copy
import pickle

import pytest

from engine.trace.lazy_tuple import LazyTuple


class CountingBuild:
    """Builds three items and counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[str]:
        self.times += 1
        return ["a", "b", "c"]


@pytest.fixture
def build() -> CountingBuild:
    return CountingBuild()


def test_items_are_not_built_before_the_first_access(build: CountingBuild) -> None:
    items = LazyTuple(build, 3)
    assert len(items) == 3 and items
    assert build.times == 0


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (len, 3),
        (list, ["a", "b", "c"]),
        (lambda items: items[1], "b"),
        (lambda items: items[-2:], ("b", "c")),
        (lambda items: "c" in items, True),
        (lambda items: items == ("a", "b", "c"), True),
        (lambda items: items == ("a", "b"), False),
        (lambda items: hash(items) == hash(("a", "b", "c")), True),
        (repr, "('a', 'b', 'c')"),
    ],
)
def test_items_are_built_once(access, expected, build: CountingBuild) -> None:
    items = LazyTuple(build)
    assert access(items) == expected and access(items) == expected
    assert build.times == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_is_a_plain_tuple(copied, build: CountingBuild) -> None:
    assert copied(LazyTuple(build)) == ("a", "b", "c")
    assert type(copied(LazyTuple(build))) is tuple
