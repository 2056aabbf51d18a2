"""Constrained beam search: forced words appear, and progress is recorded."""

from typing import Any

import pytest
import torch

from engine.trace import Trace
from playground import Playground, PlaygroundError
from strategies.constrained_beam_search import Progress, divide
from tests.tiny import tiny

PROMPT = "Hello there"
ID = "constrained_beam_search"
ENDING: dict[str, Any] = {"sequence_bias": [[[2], 5.0]]}
CHOICES: list[tuple[str, dict[str, Any]]] = [
    (ID, {"force_words": [[100]], "num_beams": 4, "num_return_sequences": 2}),
    (ID, {"force_words": [[[100], [120, 121]], [101]], **ENDING, "num_beams": 6}),
    (ID, {"force_words": [[100, 101, 102]], "early_stopping": True, **ENDING}),
]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return Playground(tiny("llama")).compare(PROMPT, CHOICES, max_new_tokens=16)


def has(ids: tuple[int, ...], phrase: list[int]) -> bool:
    return any(list(ids[at : at + len(phrase)]) == phrase for at in range(len(ids)))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5", "bart"])
@pytest.mark.parametrize("more", [{}, {**ENDING, "early_stopping": True}], ids=str)
def test_without_constraints_it_is_beam_search(kind: str, more: dict[str, Any]) -> None:
    own = {"num_beams": 4, "num_return_sequences": 4, **more}
    beam, constrained = Playground(tiny(kind)).compare(
        PROMPT, [("beam_search", own), (ID, own)], max_new_tokens=12
    )
    assert constrained.sequences == beam.sequences


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bart"])
def test_forced_words_appear_in_the_text(kind: str) -> None:
    words = [[100], [120, 121], [[130], [131, 132]]]
    [trace] = Playground(tiny(kind)).compare(
        PROMPT, [(ID, {"force_words": words, "num_beams": 8})], max_new_tokens=20
    )
    ids = trace.sequences[0].token_ids
    assert has(ids, [100]) and has(ids, [120, 121])
    assert has(ids, [130]) or has(ids, [131, 132])


def test_forced_strings_count_with_or_without_a_leading_space() -> None:
    lab = Playground(tiny("llama"))
    bare, spaced = (list(lab.model.tokenizer(text).input_ids) for text in ("ok", " ok"))
    word, spelled, either = lab.compare(
        PROMPT,
        [
            (ID, {"force_words": "ok"}),
            (ID, {"force_words": [[bare, spaced]]}),
            (ID, {"force_words": [["ok", "no"], "x"]}),
        ],
        max_new_tokens=16,
    )
    assert "ok" in word.text and word.sequences == spelled.sequences
    assert "x" in either.text and ("ok" in either.text or "no" in either.text)


def test_force_words_ids_is_accepted_as_in_transformers() -> None:
    forms = [{"force_words": [[100], [[101], [102]]]}, {"force_words_ids": [[100], [[101], [102]]]}]
    forms += [{"force_words": [[100]], "force_words_ids": [[[101], [102]]]}]
    one, two, both = Playground(tiny("llama")).compare(
        PROMPT, [(ID, form) for form in forms], max_new_tokens=12
    )
    assert one.sequences == two.sequences == both.sequences


def test_finished_texts_meet_all_constraints(traces: list[Trace]) -> None:
    for trace in traces:
        ended = [s for s in trace.steps if s.token.id == 2 and s.event in ("finished", "returned")]
        for step in ended:
            assert all(done == of for done, of in step.notes["constraints"])
        for sequence in trace.sequences:
            last = trace.steps[sequence.steps[-1]]
            assert all(done == of for done, of in last.notes["constraints"])
    assert any(step.event == "finished" for step in traces[2].steps)


def test_recorded_progress_equals_the_progress_of_the_text(traces: list[Trace]) -> None:
    for trace in traces:
        phrases = trace.settings["force_words"]
        alternatives = [item if isinstance(item[0], list) else [item] for item in phrases]
        constraints = tuple(tuple(map(tuple, options)) for options in alternatives)
        before = Progress.after([token.id for token in trace.prompt_tokens], constraints)
        for step in trace.steps:
            progress = before
            for passed in trace.path(step.id):
                progress = progress.read(passed.token.id)
            assert step.notes["constraints"] == progress.counts()
            assert step.notes["bank"] == progress.bank
            longest = max(of for _, of in step.notes["constraints"])
            counted = [longest - of + done for done, of in step.notes["constraints"] if done]
            assert step.notes["bank"] == sum(counted)


def test_forced_candidates_are_marked(traces: list[Trace]) -> None:
    for trace in traces:
        wanted = {100, 101, 102, 120, 121}
        forced = [step for step in trace.steps if step.notes["forced"]]
        assert forced and {step.token.id for step in forced} <= wanted
        best = 2 * trace.settings["num_beams"]
        free = [step for step in trace.steps if step.notes["order"] < best]
        assert len(free) == best * len(trace.ticks)


def test_scores_add_up_along_every_returned_text(traces: list[Trace]) -> None:
    for trace in traces:
        for sequence in trace.sequences:
            path = trace.path(sequence.steps[-1])
            total = sum(step.notes["score"] for step in path)
            assert sequence.score == pytest.approx(total / len(path), abs=1e-4)


def test_beams_are_divided_among_banks() -> None:
    totals = torch.tensor([-1.0, -2.0, -3.0, -9.0, -8.0, -20.0])
    banks = [0, 0, 0, 1, 1, 2]
    assert divide(range(6), banks, totals) == [5, 4, 0, 3, 1, 2]


def test_a_text_works_on_one_constraint_at_a_time() -> None:
    constraints = (((1, 2, 3),), ((1, 4), (5,)))
    started = Progress.after([9, 1], constraints)
    assert started.counts() == [[1, 3], [0, 2]] and started.wanted() == [2]
    broken = started.read(4)  # the token would start the other constraint
    assert broken.counts() == [[0, 3], [0, 2]] and broken.wanted() == [1, 5]
    assert broken.read(1).counts() == [[0, 3], [1, 2]]  # the failed one comes last
    met = broken.read(5).read(1).read(2).read(3)
    assert met.met and met.counts() == [[3, 3], [2, 2]] and met.bank == 6 and not met.wanted()
    assert met.read(1) == met


def test_the_prompt_can_meet_a_constraint_and_a_too_long_one_stays_unmet() -> None:
    lab = Playground(tiny("llama"))
    beam, there, long = lab.compare(
        PROMPT,
        [
            ("beam_search", {}),
            (ID, {"force_words": "there"}),
            (ID, {"force_words": [list(range(100, 120))]}),
        ],
        max_new_tokens=8,
    )
    assert there.sequences == beam.sequences
    done, of = long.steps[long.sequences[0].steps[-1]].notes["constraints"][0]
    assert done < of and long.error is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_beams": 1}, "num_beams is 1"),
        ({"force_words": "x", "num_return_sequences": 6}, "num_return_sequences"),
        ({"force_words": []}, "force_words is an empty list"),
        ({"force_words": ["x", " "]}, "force_words has ' '; it must be a word"),
        ({"force_words": [[]]}, "force_words has an empty list"),
        ({"force_words": [[[100], []]]}, "force_words has an empty list"),
        ({"force_words": 5}, "force_words is 5; it must be a list"),
        ({"force_words": [[100, 999]]}, "force_words has 999"),
        (
            {"force_words_ids": [[[100], [100, 101]]]},
            r"force_words_ids has \[100\] as an alternative",
        ),
    ],
)
def test_invalid_settings_are_rejected_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(PlaygroundError, match=named):
        Playground(tiny("llama")).compare(PROMPT, [(ID, settings)])


def test_an_alternative_that_extends_another_one_changes_nothing() -> None:
    lab = Playground(tiny("llama"))
    one, two = lab.compare(
        PROMPT,
        [(ID, {"force_words": "ship"}), (ID, {"force_words": [["ships", "ship"]]})],
        max_new_tokens=12,
    )
    assert one.sequences == two.sequences
