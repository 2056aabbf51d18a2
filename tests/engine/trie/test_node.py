"""Texts that share their tokens behave as separate ones."""

from hypothesis import given
from hypothesis import strategies as st

from engine.trie.node import UNSHARED, Text

TOKENS = st.lists(st.integers(0, 9), max_size=2 * UNSHARED)


@given(start=TOKENS, pieces=st.lists(TOKENS, max_size=8))
def test_a_text_contains_all_tokens_added_to_it(start: list[int], pieces: list[list[int]]) -> None:
    text, expected = Text(tuple(start)), tuple(start)
    for piece in pieces:
        before, text, expected = text, text.extended(piece), (*expected, *piece)
        assert tuple(before) == expected[: len(before)]  # earlier texts stay as they were
        assert tuple(text) == expected and len(text) == len(expected)
        assert text[-3:] == expected[-3:] and (not text or text[-1] == expected[-1])


def test_a_long_text_is_not_copied_for_every_token() -> None:
    text, heads = Text(tuple(range(1000))), set[int]()
    for token in range(10 * UNSHARED):
        text = text.extended([token])
        heads.add(len(text._head))
        assert len(text._tail) < UNSHARED
    assert len(heads) == 11
