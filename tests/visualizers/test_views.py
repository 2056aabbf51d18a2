"""The contract of every registered figure, whichever files there are."""

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest

import visualizers
from engine.trace import Token, Trace
from tests.conftest import EVIL
from tests.visualizers.samples import forked, scored
from visualizers.registry import COMPARISON_TABS

VIEWS = visualizers.views()


@pytest.fixture(params=VIEWS, ids=lambda view: view.id)
def view(request):
    """Every registered figure."""
    return request.param


@pytest.fixture(params=[view for view in VIEWS if view.input is Trace], ids=lambda view: view.id)
def trace_view(request):
    """Every figure of traces."""
    return request.param


@pytest.fixture
def samples(view, every_kind, inputs):
    """Inputs that the figure can draw."""
    if view.input is Trace:
        traces = [trace for trace in every_kind if view.needs(trace)]
        assert traces, f"no sample trace has what {view.id} needs: add one to tests/visualizers"
        return [traces]
    assert view.input in inputs, f"add an example of {view.input.__name__} to samples.inputs"
    return [data for data in inputs[view.input] if view.needs(data)]


def axis_titles(figure):
    return [axis.title.text for axis in [*figure.select_xaxes(), *figure.select_yaxes()]]


def as_text(figure):
    return figure.to_json().replace("\\u003c", "<")


def with_evil_tokens(trace):
    """The trace with HTML as the text of every token."""
    prompt = tuple(Token(token.id, EVIL) for token in trace.prompt_tokens)
    steps = (replace(step, token=Token(step.token.id, EVIL)) for step in trace.steps)
    return replace(trace, prompt_tokens=prompt, steps=tuple(steps))


# Every figure


def test_every_figure_has_a_title_and_axis_titles(view, samples):
    for data in samples:
        figure = view.draw(data)
        assert isinstance(figure, go.Figure)
        assert figure.layout.title.text
        assert len(axis_titles(figure)) >= 2 and all(axis_titles(figure))
        assert json.loads(figure.to_json())["layout"]["title"]


def test_every_figure_has_template_size_and_margins(view, samples):
    for data in samples:
        layout = view.draw(data).layout
        template = layout.template.layout
        assert template.paper_bgcolor == template.plot_bgcolor == "rgba(0,0,0,0)"
        assert "sendChartToCloud" in template.modebar.remove
        assert 150 <= layout.meta["min_width"] <= 1500 and layout.height >= 200
        assert None not in (layout.margin.t, layout.margin.r, layout.margin.b, layout.margin.l)


def test_every_figure_shows_details_on_hover(view, samples):
    drawn = [data for sample in samples for data in view.draw(sample).data]
    shown = [data for data in drawn if data.hoverinfo != "skip"]
    assert any(
        data.hovertext or data.hovertemplate or data.text or data.hoverinfo is None
        for data in shown
    )


def test_no_figure_reads_text_as_html(view, samples):
    for data in samples:
        assert "<img" not in as_text(view.draw(data))


def test_every_figure_has_a_summary(view):
    assert view.title and view.summary.endswith(".") and "\n" not in view.summary


def test_calling_the_function_gives_the_same_figure_as_the_view(view, samples):
    figure = view.function(samples[0])
    assert (
        figure.layout.title.text and figure.layout.template == view.draw(samples[0]).layout.template
    )


# Figures of traces


def comparisons(traces):
    return [[], *([trace] for trace in traces), traces[:2], traces]


def test_a_figure_of_traces_draws_any_comparison(trace_view, toy_traces):
    for traces in comparisons(toy_traces):
        figure = trace_view.draw(traces)
        assert figure.layout.title.text and all(axis_titles(figure))


@pytest.mark.parametrize("at", [None, 0, 4, 10_000])
def test_a_figure_of_traces_highlights_any_position(trace_view, at, every_kind, toy_traces):
    for traces in (every_kind, [*toy_traces, *every_kind[:3]], every_kind[-2:]):
        figure = trace_view.draw(traces, at)
        assert figure.layout.title.text and all(axis_titles(figure))


def test_a_figure_of_traces_draws_every_kind_of_trace_alone(trace_view, every_kind):
    for trace in every_kind:
        drawn = bool(trace_view.draw([trace], 4).data)
        assert drawn == (trace_view.needs(trace) and trace_view.min_traces == 1)


def test_a_figure_of_traces_draws_nothing_of_a_failed_run(trace_view, failed_trace):
    assert not trace_view.needs(failed_trace)
    for drawn in trace_view.draw([failed_trace]).data:
        assert all(drawn[name] is None or not len(drawn[name]) for name in "xyz" if name in drawn)


def test_no_figure_of_traces_reads_a_token_as_html(trace_view, every_kind, greedy_trace):
    texts = [greedy_trace, forked(greedy_trace, 4), scored(greedy_trace)]
    for traces in (list(map(with_evil_tokens, every_kind)), texts):
        assert "<img" not in as_text(trace_view.draw(traces, 3))


def test_a_figure_of_traces_draws_the_same_trace_twice(trace_view, every_kind):
    traces = [trace for trace in every_kind if trace_view.needs(trace)]
    figure = trace_view.draw([traces[0], traces[0]])
    assert figure.data and all(axis_titles(figure))
    assert len(figure.to_json()) < 300_000


def test_a_comparison_shows_figures_of_traces_only(view):
    assert view.tab not in COMPARISON_TABS or view.input is Trace
