"""The state in a link: it is restored as it was, and invalid links are rejected."""

import base64
import json
import zlib

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import PlaygroundError
from playground.ui.compare.cards import Card
from playground.ui.compare.links import MAX_CHARACTERS, State, decode, encode
from playground.ui.shared.controls import fitting

shown = st.one_of(st.text(), st.integers(-(10**6), 10**6), st.booleans())


@given(
    st.builds(
        State,
        model=st.text(),
        prompt=st.text(),
        chat=st.booleans(),
        shared=st.dictionaries(st.sampled_from(["seed", "stop_strings"]), shown),
        cards=st.lists(
            st.builds(
                Card,
                st.sampled_from(["greedy", "sample"]),
                st.dictionaries(st.sampled_from(["seed", "repetition_penalty"]), shown),
            )
        ).map(tuple),
        pages=st.dictionaries(st.text(), st.dictionaries(st.text(), shown | st.lists(shown))),
    )
)
def test_a_state_is_restored_as_it_was(state):
    assert decode(encode(state)) == state


def test_a_link_has_only_valid_characters():
    text = encode(State("smollm2", "Was ist das? ☃ ${1} <b>" * 50))
    assert text.isascii() and not set(text) & set("#&=+/?% ")
    assert len(text) < 200


def test_empty_fields_are_left_out():
    cards = [Card("sample", {"top_p": 0.9, "min_p": None, "top_k": ""}, key=3)]
    state = State.of("smollm2", "p", False, {"seed": 0, "stop_strings": ""}, cards, {})
    assert state.shared == {"seed": 0}
    assert state.cards == (Card("sample", {"top_p": 0.9}),)


def packed(data):
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode().rstrip("=")


WHOLE = {"version": 1, "model": "m", "prompt": "p", "chat": False, "shared": {}, "cards": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "ü",
        "a" * 1000,
        packed([]),
        packed({**WHOLE, "version": 2}),
        packed({**WHOLE, "prompt": 3}),
        packed({**WHOLE, "cards": [["no such strategy", {}]]}),
        packed({**WHOLE, "cards": [["greedy", {"no such setting": 1}]]}),
        packed({**WHOLE, "cards": [[["greedy"], {}]]}),
        packed({**WHOLE, "shared": {"seed": {"a": 1}}}),
        packed({**WHOLE, "race": [1]}),
        packed({**WHOLE, "pages": {"speculative": 3}}),
        packed({**WHOLE, "prompt": "x" * (MAX_CHARACTERS + 1)}),  # too large
    ],
)
def test_an_invalid_link_is_rejected_with_a_message(text):
    with pytest.raises(PlaygroundError, match="this link cannot be read"):
        decode(text)


def test_links_of_earlier_releases_are_read():
    assert decode(packed(WHOLE)) == State("m", "p")
    race = {"tokens": 9}
    assert decode(packed({**WHOLE, "race": race})).pages == {"speculative": race}


@pytest.mark.parametrize(("value", "shows"), [(500, 100), (-1, 1), ("many", 48)])
def test_a_value_beyond_the_servers_limits_is_adjusted(value, shows):
    with pytest.warns(UserWarning, match=f"it must be a number from 1 to 100. {shows} is used"):
        assert fitting(gr.Slider(1, 100), value, 48) == shows
    assert fitting(gr.Textbox(), value, 48) == value
