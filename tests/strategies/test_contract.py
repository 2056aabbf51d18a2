"""The contract of every strategy: a new file in `strategies/` is tested without further changes."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.settings import SHARED, Limits, Setting
from engine.strategy import Strategy
from engine.trace import Step, Trace
from playground import Playground, PlaygroundError
from strategies import registered
from tests.heads import random_heads
from tests.tiny import tiny

EVERY = pytest.mark.parametrize("id", registered())


def best(
    model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, **_: Any
) -> Tensor:
    """Greedy decoding as a user might write it."""
    while True:
        scores = logits_processor(input_ids, model(input_ids).logits[:, -1])
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
        if stopping_criteria(input_ids, None).all():
            return input_ids


# The settings that a strategy requires.
NEEDED = {
    "custom": {"custom_generate": best},
    "universal_speculative": {"assistant_model": "stories15m"},
}


def required_choice(id: str) -> tuple[str, dict[str, Any]]:
    return id, NEEDED.get(id, {})


@pytest.fixture(scope="module")
def lab() -> Playground:
    model = tiny("llama")
    return Playground(
        model, drafts=["stories15m"], heads=random_heads(model)
    )  # without a list, 'low' would be looked up on the Hub


def timeless(trace: Trace) -> list[Step]:
    """The steps without their times."""
    kept = ({**step.notes, "draft_ms": None} for step in trace.steps)
    return [replace(step, notes=notes) for step, notes in zip(trace.steps, kept, strict=True)]


@EVERY
def test_equal_seeds_give_equal_traces(id: str, lab: Playground) -> None:
    one, two = (
        lab.compare("same", [required_choice(id)], max_new_tokens=8, seed=9)[0] for _ in range(2)
    )
    assert (timeless(one), one.sequences, one.stop) == (timeless(two), two.sequences, two.stop)


@EVERY
def test_it_stops_at_the_length_and_at_an_end_token(id: str, lab: Playground) -> None:
    [long] = lab.compare("same", [required_choice(id)], max_new_tokens=7, suppress_tokens=[2])
    assert {len(sequence.token_ids) for sequence in long.sequences} == {7}
    assert all(sequence.stop.rule == "length" for sequence in long.sequences)
    end = long.sequences[0].token_ids[1]
    [short] = lab.compare("same", [required_choice(id)], max_new_tokens=7, eos_token_id=[end])
    ended = [s for s in short.sequences if s.stop.rule == "end_token"]
    assert all(sequence.token_ids[-1] == end for sequence in ended)


@EVERY
def test_max_new_tokens_1_works(id: str, lab: Playground) -> None:
    [trace] = lab.compare("same", [required_choice(id)], max_new_tokens=1)
    assert trace.error is None and len(trace.sequences[0].token_ids) == 1
    # The last token of a text is evaluated only by strategies that look one token ahead.
    assert trace.forward_passes <= 1 + (id == "contrastive_search")


@EVERY
def test_costs_add_up(id: str, lab: Playground) -> None:
    [trace] = lab.compare("a prompt of its own for " + id, [required_choice(id)], max_new_tokens=9)
    assert trace.forward_passes == sum(tick.forward_passes for tick in trace.ticks)
    assert trace.nodes == sum(tick.nodes for tick in trace.ticks)
    assert max(step.tick for step in trace.steps) == len(trace.ticks) - 1
    assert trace.settings["max_new_tokens"] == 9 and trace.strategy == id


@EVERY
def test_the_text_of_the_steps_is_the_text(id: str, lab: Playground) -> None:
    [trace] = lab.compare("same", [required_choice(id)], max_new_tokens=12)
    for sequence in trace.sequences:
        added = "".join(trace.steps[step].text for step in sequence.steps)
        assert sequence.text.startswith(added)


@EVERY
def test_a_prefix_acts_as_a_longer_prompt(id: str, lab: Playground) -> None:
    # Every byte is a token here, so both are tokenized alike.
    [whole] = lab.compare("same old", [required_choice(id)], max_new_tokens=8, seed=4)
    [forked] = lab.compare("same", [required_choice(id)], prefix=" old", max_new_tokens=8, seed=4)
    assert forked.error is None and forked.prompt == "same"
    assert "".join(token.text for token in forked.prefix) == " old"
    assert [s.token_ids for s in forked.sequences] == [s.token_ids for s in whole.sequences]
    assert [s.text for s in forked.sequences] == [s.text for s in whole.sequences]
    assert [s.score for s in forked.sequences] == pytest.approx(
        [s.score for s in whole.sequences], abs=1e-4
    )


@EVERY
def test_it_scores_a_text_or_rejects_that(id: str, lab: Playground) -> None:
    if registered()[id].runs_user_code:
        with pytest.raises(PlaygroundError, match="cannot score"):
            lab.score("same", " old", [required_choice(id)])
        return
    [trace] = lab.score("same", " old", [required_choice(id)])
    assert trace.strategy == id and trace.text == " old" and trace.stop.rule == "scored"
    assert [step.event for step in trace.steps] == ["given"] * 4
    assert all(step.raw is not None and step.distribution is not None for step in trace.steps)


# Values for settings that are neither numbers nor choices.
FREE = ["low", [0, 1], [1], ["a"], [["a", "b"]], [[40, 41]], [[[40], [41, 42]]], {"a": 2.0}, 3]
SHARED_TOO = [name for name, setting in SHARED.items() if not setting.python_only]


def drawn(setting: Setting) -> st.SearchStrategy[object]:
    """Values inside a setting's bounds, and some outside."""
    if setting.choices is not None:
        return st.sampled_from([*setting.choices, "nonsense"])
    if setting.kind is bool:
        return st.booleans()
    if setting.kind not in (int, float):
        return st.sampled_from(FREE)
    low = setting.low if setting.low is not None else -5
    high = min(setting.highest(Limits()) or 8, 8)
    if setting.kind is int:
        return st.integers(int(low) - 1, int(high) + 1)
    return st.floats(low - 0.5, high + 0.5)


@EVERY
@pytest.mark.filterwarnings("ignore")  # transformers warns about settings without an effect
@settings(deadline=None, max_examples=40, derandomize=True)  # reproducible
@given(data=st.data())
def test_any_settings_give_a_valid_trace_or_an_error_that_names_one(
    id: str, data: st.DataObject, lab: Playground
) -> None:
    strategy: Strategy = registered()[id]
    known = strategy.settings
    own = st.lists(st.sampled_from(sorted(strategy.own_settings) or ["seed"]), unique=True)
    shared = st.lists(st.sampled_from(SHARED_TOO), unique=True, max_size=2)
    names = dict.fromkeys([*data.draw(own), *data.draw(shared)])
    given_settings = {name: data.draw(drawn(known[name]), label=name) for name in names}
    own_settings = {"max_new_tokens": 4, **NEEDED.get(id, {}), **given_settings}
    try:
        [trace] = lab.compare("any", [(id, own_settings)])
    except PlaygroundError as refusal:
        assert any(name in str(refusal) for name in own_settings), refusal
        return
    if trace.error is not None:
        assert any(name in trace.error for name in own_settings), trace.error
        return
    assert 1 <= len(trace.sequences) <= trace.settings.get("num_return_sequences", 1)
    assert Trace.from_json(trace.to_json()) == trace


@pytest.mark.parametrize("id", ["greedy", "beam_search"])
def test_scores_that_are_not_numbers_end_a_run_with_an_error(id: str) -> None:
    known = tiny("llama")
    model = replace(known, module=deepcopy(known.module))  # other tests share the known one
    with torch.no_grad():
        model.module.lm_head.weight[7] = float("nan")
    [trace] = Playground(model).compare("any", [(id, {})], max_new_tokens=2)
    assert trace.error == "the scores after the model are not numbers"
    assert Trace.from_json(trace.to_json()) == trace
