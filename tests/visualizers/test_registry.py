"""Registering figures: order, defaults, errors."""

import plotly.graph_objects as go
import pytest

import visualizers
from visualizers import registry
from visualizers.registry import COMPARISON_TABS, TABS, view


@pytest.fixture
def empty(monkeypatch):
    """An empty registry."""
    monkeypatch.setattr(registry, "_REGISTRY", {})


def plain(traces, at=None):
    """A plain figure."""
    return go.Figure(go.Scatter(y=[len(traces)]), layout={"xaxis_title": "x", "yaxis_title": "y"})


def ids(*arguments):
    return [view.id for view in visualizers.views(*arguments)]


@pytest.mark.usefixtures("empty")
def test_views_are_sorted_by_tab_then_order_then_id():
    view("z", title="Z")(plain)
    view("own", title="Own", tab="strategy", order=1)(plain)
    view("b", title="B", order=20)(plain)
    view("a", title="A", order=20)(plain)
    view("first", title="First", order=3)(plain)
    assert ids() == ["first", "a", "b", "z", "own"]
    assert ids("charts") == ["first", "a", "b", "z"]
    assert ids("detect") == []


def test_the_registered_views_stand_in_declared_order():
    places = [(TABS.index(view.tab), view.order, view.id) for view in visualizers.views()]
    assert places == sorted(places) and len({id for *_, id in places}) == len(places)


@pytest.mark.usefixtures("empty")
def test_a_plain_figure_becomes_a_complete_view(greedy_trace):
    view("plain", title="A plain figure")(plain)
    [found] = visualizers.applicable([greedy_trace])
    layout = found.draw([greedy_trace], 2).layout
    assert layout.title.text == "A plain figure"
    assert (layout.height, layout.meta["min_width"]) == (450, 320)
    assert (layout.margin.t, layout.margin.r, layout.margin.b, layout.margin.l) == (80, 20, 80, 80)
    assert layout.template.layout.font.family == "system-ui, sans-serif"
    assert layout.xaxis.title.text == "x" and found.summary == "A plain figure."


@pytest.mark.usefixtures("empty")
def test_what_a_figure_sets_itself_is_kept(greedy_trace):
    def own(traces):
        layout = {"title": "Own", "height": 900, "margin": {"t": 10}, "meta": {"min_width": 700}}
        return go.Figure(layout=layout)

    layout = view("own", title="Registered")(own)([greedy_trace]).layout
    assert (layout.title.text, layout.height, layout.margin.t) == ("Own", 900, 10)
    assert (layout.margin.r, layout.meta["min_width"]) == (20, 700)


@pytest.mark.usefixtures("empty")
def test_a_function_without_a_position_is_drawn_without_it(greedy_trace):
    view("whole", title="Whole")(lambda traces: plain(traces))
    [found] = visualizers.views()
    assert found.draw([greedy_trace], 3).data[0].y == (1,)


@pytest.mark.usefixtures("empty")
def test_by_default_a_view_applies_to_traces_with_steps(greedy_trace, failed_trace):
    view("plain", title="Plain")(plain)
    view("pairs", title="Pairs", min_traces=2)(plain)
    assert not visualizers.applicable([]) and not visualizers.applicable([failed_trace])
    assert [v.id for v in visualizers.applicable([greedy_trace, failed_trace])] == ["plain"]
    assert [v.id for v in visualizers.applicable([greedy_trace] * 2)] == ["pairs", "plain"]


def test_only_views_of_a_comparison_apply_to_traces(every_kind):
    assert {view.tab for view in visualizers.applicable(every_kind)} <= set(COMPARISON_TABS)


@pytest.mark.usefixtures("empty")
def test_two_views_with_one_id_are_an_error():
    view("same", title="Same")(plain)
    with pytest.raises(ValueError, match="'same' is registered by"):
        view("same", title="Same")(plain)


@pytest.mark.usefixtures("empty")
def test_an_unknown_tab_is_an_error_that_lists_the_tabs():
    with pytest.raises(ValueError, match=r"unknown tab 'chart'; choose one of charts, "):
        view("lost", title="Lost", tab="chart")


@pytest.mark.usefixtures("empty")
def test_a_figure_of_other_data_cannot_be_on_a_tab_of_a_comparison():
    with pytest.raises(ValueError, match="figures of traces only"):
        view("other", title="Other", input=int)
