"""Lines along the tokens, raw and after the processors."""

import dataclasses
import math

import pytest

from tests.visualizers.samples import Word, chain, forked, uncaptured
from visualizers.compare import entropy, probability


def test_probabilities_are_the_models_own_and_those_after_the_processors(greedy_trace):
    (line,) = probability._info([greedy_trace]).lines
    assert [point.raw for point in line.points] == pytest.approx([0.8, 0.4, 0.05, 0.005, 0.95])
    assert [point.final for point in line.points] == pytest.approx(
        [0.85, 0.55, 0.2875, 0.25375, 0.9625]
    )
    assert [point.token for point in line.points][:3] == [" Hi", "\n", "🙂"]


def test_a_token_that_was_cut_has_no_final_probability(greedy_trace):
    cut = dataclasses.replace(greedy_trace.steps[0], final=None)
    trace = dataclasses.replace(greedy_trace, steps=(cut, *greedy_trace.steps[1:]))
    (line,) = probability._info([trace]).lines
    assert line.points[0].final is None
    hover = probability._figure(probability._info([trace])).data[0].hovertext[0]
    assert "after processors: cut" in hover


def test_a_step_that_was_not_captured_is_a_gap(greedy_trace):
    figure = probability.probability([uncaptured(greedy_trace, 1)])
    assert figure.data[0].y[1] is None
    assert "not captured" in figure.data[0].hovertext[1]


def test_a_step_without_raw_probability_still_shows_the_final_one(greedy_trace):
    unknown = dataclasses.replace(greedy_trace.steps[1], raw=None, rank=None)
    steps = (greedy_trace.steps[0], unknown, *greedy_trace.steps[2:])
    figure = probability.probability([dataclasses.replace(greedy_trace, steps=steps)])
    raw, final = figure.data
    assert raw.y[1] is None and final.y[4] == pytest.approx(0.55)
    assert "model: not captured<br>after processors: 55.0%" in final.hovertext[4]


def test_a_run_without_processors_has_one_line_and_no_stems(greedy_trace):
    plain = tuple(dataclasses.replace(step, final=step.raw) for step in greedy_trace.steps)
    trace = dataclasses.replace(greedy_trace, steps=plain)
    assert len(probability.probability([trace]).data) == 1
    assert len(probability.probability([greedy_trace]).data) == 2


def test_entropies_are_those_recorded(beam_trace):
    (line,) = entropy._info([beam_trace]).lines
    assert [(point.raw, point.final) for point in line.points] == [(1.5, 0.5)] * 3


def test_the_line_of_a_beam_search_follows_the_best_sequence(beam_trace):
    (line,) = probability._info([beam_trace]).lines
    assert [point.token for point in line.points] == [" a", " d", " g"]
    assert math.prod(point.raw for point in line.points) == pytest.approx(0.6 * 0.95 * 0.72)


def test_a_trace_keeps_its_colour_when_another_is_left_out(failed_trace, greedy_trace):
    (line,) = probability._info([failed_trace, greedy_trace]).lines
    assert line.run == 1


def test_a_hover_text_names_token_event_both_values_rank_and_tokens_kept(greedy_trace):
    hover = probability.probability([greedy_trace]).data[0].hovertext
    assert "<b>␣Hi</b>  chosen" in hover[0]
    assert "model: 80.0%" in hover[0] and "after processors: 85.0%" in hover[0]
    assert "rank 1 · 2 tokens kept" in hover[0]
    assert "<b>⏎</b>" in hover[1]


def test_a_fork_begins_after_the_text_it_continues(real):
    (line,) = probability._info([forked(real["sample"], 3)]).lines
    assert [*line.positions] == [4, 5, 6, 7, 8]
    assert probability.probability([forked(real["sample"], 3)]).data[0].x == (4, 5, 6, 7, 8)


def test_lines_that_end_early_leave_room_for_the_longest():
    runs = [chain("greedy", [Word(1)]), chain("sample", [Word(1)] * 30)]
    figure = probability.probability(runs)
    assert tuple(figure.layout.xaxis.range) == (0.5, 30.5)
    assert figure.layout.meta["min_width"] == 180 + 8 * 30
