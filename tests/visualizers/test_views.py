"""The contract of every view, whichever files there are, and the numbers of the line views."""

import dataclasses
import json
import math

import plotly.graph_objects as go
import pytest

import visualizers
from tests.visualizers.samples import forked, scored
from visualizers._shared import style as style
from visualizers.compare import entropy, probability


@pytest.fixture(params=visualizers.views(), ids=lambda view: view.id)
def view(request):
    return request.param


def comparisons(traces):
    return [[], *([trace] for trace in traces), traces[:2], traces]


def axis_titles(figure):
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    return [axis.title.text for axis in axes]


def test_every_view_draws_every_comparison_with_a_title_and_axis_titles(view, toy_traces):
    for traces in comparisons(toy_traces):
        figure = view.draw(traces)
        assert isinstance(figure, go.Figure)
        assert figure.layout.title.text
        assert len(axis_titles(figure)) >= 2 and all(axis_titles(figure))


@pytest.mark.parametrize("at", [None, 0, 4, 10_000])
def test_every_view_points_out_any_place_of_every_kind_of_trace(view, at, every_kind, toy_traces):
    for traces in (every_kind, [*toy_traces, *every_kind[:3]], every_kind[-2:]):
        figure = view.draw(traces, at)
        assert figure.layout.title.text and all(axis_titles(figure))


def test_every_view_draws_every_kind_of_trace_alone(view, every_kind):
    for trace in every_kind:
        assert bool(view.draw([trace], 4).data) == (view.needs(trace) and view.least == 1)


def test_every_view_tells_the_page_how_much_room_it_needs(view, every_kind):
    assert 150 <= view.draw(every_kind[:6]).layout.meta["min_width"] <= 1500


def test_every_view_that_draws_something_tells_more_of_it_under_the_pointer(view, every_kind):
    shown = [trace for trace in every_kind if view.needs(trace)]
    assert shown, "no sample has what this view needs"
    told = [data for data in view.draw(shown).data if data.hoverinfo != "skip"]
    assert any(data.hovertext or data.hovertemplate or data.text for data in told)


def test_every_view_leaves_the_background_to_the_page_and_uploads_nothing(view, toy_traces):
    layout = view.draw(toy_traces).layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert "sendChartToCloud" in layout.modebar.remove


def test_no_view_lets_a_token_be_read_as_html(view, toy_traces, greedy_trace):
    for traces in (toy_traces, [scored(greedy_trace)], [greedy_trace, forked(greedy_trace, 4)]):
        assert "<img" not in view.draw(traces, 3).to_json().replace("\\u003c", "<")


def test_no_view_draws_anything_it_does_not_need(view, failed_trace):
    assert not view.needs(failed_trace)
    assert not view.draw([failed_trace]).data


def test_a_view_says_what_it_shows(view):
    assert view.title and view.summary.endswith(".") and "\n" not in view.summary


def test_views_come_in_reading_order():
    ids = [view.id for view in visualizers.views()]
    across = ["probability", "rank", "entropy", "varentropy", "cumulative", "difference"]
    assert ids[:8] == [*across, "crossed", "beam_tree"]
    assert len(set(ids)) == len(ids)


def test_only_views_that_can_show_something_apply(greedy_trace, beam_trace, failed_trace):
    def ids(*traces):
        return [view.id for view in visualizers.applicable(traces)]

    assert ids() == ids(failed_trace) == []
    assert "beam_tree" not in ids(greedy_trace)
    assert "beam_tree" in ids(greedy_trace, beam_trace)


def test_probabilities_are_the_models_own_and_the_ones_used(greedy_trace):
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
    assert "as used: cut" in probability._figure(probability._info([trace])).data[0].hovertext[0]


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


def test_without_a_returned_sequence_the_longest_path_that_was_not_given_up_is_shown(beam_trace):
    stopped = dataclasses.replace(beam_trace, steps=beam_trace.steps[:7], sequences=())
    assert [step.id for step in visualizers.best_path(stopped)] == [0, 3]
    assert visualizers.best_path(dataclasses.replace(stopped, steps=())) == ()


def test_a_trace_keeps_its_colour_when_another_is_left_out(failed_trace, greedy_trace):
    (line,) = probability._info([failed_trace, greedy_trace]).lines
    assert line.place == 1


def test_a_hover_text_names_token_rank_both_numbers_and_event(greedy_trace):
    hover = probability.probability([greedy_trace]).data[0].hovertext
    assert "<b>␣Hi</b>  chosen" in hover[0]
    assert "model: 80.0%" in hover[0] and "as used: 85.0%" in hover[0]
    assert "rank 1 · 2 tokens kept" in hover[0]
    assert "<b>⏎</b>" in hover[1]


def test_labels_show_what_tells_traces_apart(greedy_trace, beam_trace):
    wider = dataclasses.replace(beam_trace, settings={"max_new_tokens": 5, "num_beams": 5})
    assert visualizers.labels([beam_trace]) == ("beam_search · num_beams=2",)
    assert visualizers.labels([greedy_trace, beam_trace, wider]) == (
        "greedy",
        "beam_search · num_beams=2",
        "beam_search · num_beams=5",
    )


def test_labels_of_equal_runs_are_numbered_and_other_seeds_are_named(greedy_trace):
    again = dataclasses.replace(greedy_trace, seed=7)
    assert visualizers.labels([greedy_trace, greedy_trace]) == ("greedy", "greedy (2)")
    assert visualizers.labels([greedy_trace, again]) == ("greedy · seed=0", "greedy · seed=7")


def test_labels_of_forks_say_where_they_begin(greedy_trace):
    fork = dataclasses.replace(forked(greedy_trace, 2), settings={"max_new_tokens": 3})
    assert visualizers.labels([greedy_trace, fork]) == ("greedy", "greedy · from token 3")


def test_labels_stay_short_however_many_settings_there_are(greedy_trace):
    many = {f"setting_{number}": "x" * 99 for number in range(9)}
    (label,) = visualizers.labels([dataclasses.replace(greedy_trace, settings=many)])
    assert label.endswith(", …") and len(label) < 130


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" the", "␣the"), ("\n\t", "⏎⇥"), ("\u00a0", "⍽"), ("\u202e", "\\u202e"), ("é🙂", "é🙂")],
)
def test_characters_without_ink_are_made_visible(text, shown):
    assert visualizers.visible(text) == shown


def test_text_for_plotly_is_neither_html_nor_tex():
    assert style.escape("<b>&$x$") == "&lt;b&gt;&amp;&#36;x&#36;"
    assert style.spelled("a" * 50, 10) == "a" * 9 + "…"


def test_very_small_probabilities_keep_their_magnitude():
    assert [style.percent(p) for p in (0, 0.5, 0.001, 0.00012)] == [
        "0.0%",
        "50.0%",
        "0.1%",
        "1.2e-04",
    ]


def test_a_figure_can_be_sent_as_json(view, toy_traces):
    assert json.loads(view.draw(toy_traces).to_json())["layout"]["title"]
