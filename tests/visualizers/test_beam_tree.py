"""The beam tree draws what was recorded: real parents, real events, real scores."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualizers import beam_tree
from visualizers._tree_layout import grown, placed


@pytest.fixture
def tree(beam_trace):
    (tree,) = beam_tree._info([beam_trace]).trees
    return tree


def test_edges_are_the_recorded_parents(tree, beam_trace):
    recorded = [(step.parent, step.id) for step in beam_trace.steps]
    assert [(edge.parent, edge.child) for edge in tree.edges] == recorded
    places = {node.step.id: node.place for node in tree.nodes} | {None: (0, 0)}
    assert all(edge.start == places[edge.parent] for edge in tree.edges)
    assert all(edge.end == places[edge.child] for edge in tree.edges)


def test_the_depth_of_a_node_is_the_length_of_its_text(tree, beam_trace):
    for node in tree.nodes:
        assert node.place.depth == len(beam_trace.path(node.step.id))
    assert tree.depth == 3


def test_the_best_sequence_runs_along_the_top(tree):
    rows = {node.step.id: node.place.row for node in tree.nodes}
    assert [rows[id] for id in (0, 3, 7)] == [0, 0, 0]
    assert [rows[id] for id in (1, 4, 8)] == [1, 1, 1]
    assert rows[6] == 2


def test_pruned_leaves_stand_between_the_rows(tree):
    rows = {node.step.id: node.place.row for node in tree.nodes}
    assert {id for id, row in rows.items() if row % 1} == {2, 5, 9}
    assert rows[5] == rows[9] == 0.5


def test_lines_are_as_wide_as_their_tokens_are_probable(tree):
    widths = {edge.child: edge.width for edge in tree.edges}
    assert widths == {0: 4, 1: 3, 2: 1, 3: 6, 4: 4, 5: 1, 6: 2, 7: 5, 8: 3, 9: 1}


def test_edges_tell_returned_kept_and_pruned(tree):
    kinds = {edge.child: edge.kind for edge in tree.edges}
    assert {id for id, kind in kinds.items() if kind == "returned"} == {0, 1, 3, 4, 7, 8}
    assert {id for id, kind in kinds.items() if kind == "pruned"} == {2, 5, 9}
    assert kinds[6] == "kept"


def test_tips_have_rank_and_score(tree):
    assert [(tip.ranks, tip.score) for tip in tree.tips] == [((1,), -0.32), ((2,), -0.93)]
    assert [tip.place for tip in tree.tips] == [(3, 0), (3, 1)]


def test_sequences_that_end_alike_share_a_tip(beam_trace):
    twice = dataclasses.replace(beam_trace, sequences=beam_trace.sequences[:1] * 2)
    (tree,) = beam_tree._info([twice]).trees
    assert [tip.ranks for tip in tree.tips] == [(1, 2)]


def test_events_differ_in_shape_and_in_colour(beam_trace):
    marks = [data for data in beam_tree.beam_tree([beam_trace]).data if data.mode == "markers"]
    assert {data.name for data in marks} == {"kept", "pruned", "finished", "returned"}
    assert len({data.marker.symbol for data in marks}) == len(marks)
    assert len({data.marker.color for data in marks}) == len(marks)
    assert len(next(data for data in marks if data.name == "pruned").x) == 3


def test_a_hover_text_gives_the_scores_that_were_recorded(beam_trace):
    figure = beam_tree.beam_tree([beam_trace])
    (kept,) = [data for data in figure.data if data.name == "kept"]
    hover = kept.hovertext[2]
    assert hover.startswith("<b>␣d</b>  kept<br>model: 95.0%, rank 1")
    assert "total: -0.600<br>normalised by length: -0.300<br>beam: 0" in hover
    assert hover.endswith("tick 1")


def test_only_returned_tokens_are_labelled(beam_trace):
    texts = [words.text for words in beam_tree.beam_tree([beam_trace]).layout.annotations]
    assert texts == [
        "<b>beam_search · num_beams=2</b>",
        "<i>prompt</i>",
        *("␣a", "␣b", "␣d", "␣e", "␣g", "␣h"),
        "<b>#1</b> -0.320",
        "<b>#2</b> -0.930",
    ]


def test_several_trees_stand_one_below_the_other_and_share_a_legend(beam_trace):
    wider = dataclasses.replace(beam_trace, settings={"num_beams": 5})
    figure = beam_tree.beam_tree([beam_trace, wider])
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    named = [data.name for data in figure.data if data.showlegend]
    assert sorted(named) == ["finished", "kept", "pruned", "returned"]


def test_a_rejected_draft_beside_its_replacement_is_no_beam_tree(greedy_trace):
    first, second, *_ = greedy_trace.steps
    draft = dataclasses.replace(first, event="rejected")
    replaced = dataclasses.replace(second, parent=None, event="returned")
    assert not beam_tree.needs(dataclasses.replace(greedy_trace, steps=(draft, replaced)))


def deep(trace, beams=5, depth=48):
    """A search whose first beam bears all that is kept, and every beam one that is pruned."""
    steps, kept = [], [None] * beams
    for tick in range(depth):
        parents, kept = kept, []
        for order in range(2 * beams):
            place = {"id": len(steps), "parent": parents[order % beams], "tick": tick}
            if order < beams:
                place |= {"parent": parents[0], "event": "chosen"}
                kept.append(len(steps))
            steps.append(dataclasses.replace(trace.steps[2], **place))
    first = dataclasses.replace(trace.sequences[0], steps=tuple(range(0, len(steps), 2 * beams)))
    return dataclasses.replace(trace, steps=tuple(steps), sequences=(first,))


def test_five_beams_of_48_steps_make_a_small_figure_with_few_words(beam_trace):
    figure = beam_tree.beam_tree([deep(beam_trace)])
    assert sum(len(data.x) for data in figure.data if data.mode == "markers") == 480
    assert len(figure.data) < 20 and len(figure.to_json()) < 200_000
    assert len(figure.layout.annotations) == 48 + 3
    assert figure.layout.height < 700


def test_a_deep_tree_asks_the_page_to_scroll_and_a_shallow_one_does_not(beam_trace):
    shallow, tall = (beam_tree.beam_tree([trace]) for trace in (beam_trace, deep(beam_trace)))
    assert shallow.layout.meta["min_width"] < 390 < tall.layout.meta["min_width"]


@st.composite
def forests(draw):
    """Parents of up to 60 nodes, and some of the leaves."""
    size = draw(st.integers(0, 60))
    parents = [
        draw(st.one_of(st.none(), st.integers(0, node - 1)) if node else st.none())
        for node in range(size)
    ]
    leaves = sorted({*range(size)} - {*parents})
    return parents, draw(st.sets(st.sampled_from(leaves))) if leaves else set()


@settings(deadline=None)
@given(forests())
def test_no_two_nodes_share_a_place_and_no_two_edges_cross(forest):
    parents, small = forest
    places = placed(parents, grown(parents, {}), small)
    assert len({*places.values()}) == len(places) == len(parents) + 1
    nodes = sorted(range(len(parents)), key=lambda node: places[node])
    for above, below in pairwise(nodes):
        if places[above].depth == places[below].depth:
            assert places[parents[above]].row <= places[parents[below]].row


@settings(deadline=None)
@given(forests())
def test_every_node_stands_one_column_after_its_parent(forest):
    parents, small = forest
    places = placed(parents, grown(parents, {}), small)
    for node, parent in enumerate(parents):
        assert places[node].depth == places[parent].depth + 1
