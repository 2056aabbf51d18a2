"""What figures read from traces: best paths and labels."""

import dataclasses

import visualizers
from tests.visualizers.samples import forked
from visualizers.shared.runs import token_text, token_texts


def test_without_a_returned_sequence_the_best_path_is_the_longest_not_discarded(beam_trace):
    stopped = dataclasses.replace(beam_trace, steps=beam_trace.steps[:7], sequences=())
    assert [step.id for step in visualizers.best_path(stopped)] == [0, 3]
    assert visualizers.best_path(dataclasses.replace(stopped, steps=())) == ()


def test_labels_name_the_settings_that_differ(greedy_trace, beam_trace):
    wider = dataclasses.replace(beam_trace, settings={"max_new_tokens": 5, "num_beams": 5})
    assert visualizers.labels([beam_trace]) == ("beam_search · num_beams=2",)
    assert visualizers.labels([greedy_trace, beam_trace, wider]) == (
        "greedy",
        "beam_search · num_beams=2",
        "beam_search · num_beams=5",
    )


def test_labels_of_equal_runs_are_numbered_and_different_seeds_are_named(greedy_trace):
    again = dataclasses.replace(greedy_trace, seed=7)
    assert visualizers.labels([greedy_trace, greedy_trace]) == ("greedy", "greedy (2)")
    assert visualizers.labels([greedy_trace, again]) == ("greedy · seed=0", "greedy · seed=7")


def test_labels_of_forks_name_their_first_token(greedy_trace):
    fork = dataclasses.replace(forked(greedy_trace, 2), settings={"max_new_tokens": 3})
    assert visualizers.labels([greedy_trace, fork]) == ("greedy", "greedy · from token 3")


def test_labels_stay_short_with_many_long_settings(greedy_trace):
    many = {f"setting_{number}": "x" * 99 for number in range(9)}
    (label,) = visualizers.labels([dataclasses.replace(greedy_trace, settings=many)])
    assert label.endswith(", …") and len(label) < 130


def test_token_texts_come_from_prompt_steps_and_candidates(greedy_trace):
    texts = token_texts(greedy_trace)
    assert (texts[70], texts[0], texts[90]) == ("Say", " Hi", " rival")
    assert token_text(90, texts) == " rival" and token_text(777, texts) == "token 777"
