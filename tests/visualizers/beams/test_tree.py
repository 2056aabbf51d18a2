"""The beam tree draws what was recorded: real parents, real events, real scores."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visualizers.beams import tree as beam_tree
from visualizers.beams._tree_layout import grown, placed


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
        *("␣a", "␣b", "␣d", "␣e"),
        "␣g · <b>#1</b> -0.320",
        "␣h · <b>#2</b> -0.930",
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
    assert len(figure.layout.annotations) == 48 + 2
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


PROMPT = "The capital of France is"
SEARCHES = [
    ("beam_search", {"num_beams": 3, "num_return_sequences": 3}),
    ("beam_sample", {"num_beams": 3, "num_return_sequences": 2}),
    ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 4}),
    ("constrained_beam_search", {"force_words": "river", "num_return_sequences": 2}),
]


@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.0])
def test_the_scores_a_real_tree_shows_add_up(embedded, penalty):
    choices = [(name, {**own, "length_penalty": penalty}) for name, own in SEARCHES]
    traces = embedded.compare(PROMPT, choices, max_new_tokens=7, seed=1)
    for trace, tree in zip(traces, beam_tree._info(traces).trees, strict=True):
        nodes = {node.step.id: node for node in tree.nodes}
        for node in tree.nodes:
            if (sums := node.sums) is None:
                assert node.step.notes["total"] is None
                continue
            path = [nodes[step.id].sums for step in trace.path(node.step.id)]
            assert sums.total == pytest.approx(sum(above.score for above in path), abs=1e-4)
            assert sums.before + sums.score == pytest.approx(sums.total, abs=1e-5)
            assert sums.length == len(path) and sums.length_penalty == penalty
            assert sums.normalized == pytest.approx(sums.total / len(path) ** penalty, abs=1e-5)
        for sequence in trace.sequences:
            tip = nodes[sequence.steps[-1]].sums
            assert sequence.score == pytest.approx(tip.normalized, abs=1e-5)


def test_a_hover_text_shows_the_sum_and_the_quotient(beam_trace):
    first, *rest = beam_trace.steps
    steps = [dataclasses.replace(one, notes={**one.notes, "score": -0.1}) for one in (first, *rest)]
    settings = {**beam_trace.settings, "length_penalty": 2.0}
    figure = beam_tree.beam_tree(
        [dataclasses.replace(beam_trace, steps=tuple(steps), settings=settings)]
    )
    (kept,) = [data for data in figure.data if data.name == "kept"]
    assert "total: -0.500 − 0.100 = -0.600<br>" in kept.hovertext[2]
    assert "normalised by length: -0.600 / 2<sup>2</sup> = -0.300<br>" in kept.hovertext[2]


@pytest.fixture(scope="module")
def drawn_trace(embedded):
    own = {"num_return_sequences": 6, "temperature": 0.6}
    [trace] = embedded.compare(PROMPT, [("sample", own)], max_new_tokens=8, seed=0)
    return trace


def test_drawn_texts_are_one_tree_in_which_equal_beginnings_are_one_line(drawn_trace):
    (tree,) = beam_tree._info([drawn_trace]).trees
    assert tree.texts == 6
    beginnings = {
        sequence.token_ids[:length]
        for sequence in drawn_trace.sequences
        for length in range(1, len(sequence.token_ids) + 1)
    }
    assert len(tree.nodes) == len(beginnings)
    for node in tree.nodes:
        path = tuple(step.token.id for step in drawn_trace.path(node.step.id))
        passing = [s for s in drawn_trace.sequences if s.token_ids[: len(path)] == path]
        assert node.texts == len(passing)
    widths = {edge.child: edge.width for edge in tree.edges}
    assert all(widths[node.step.id] == 1 + round(5 * node.texts / 6) for node in tree.nodes)
    assert max(node.texts for node in tree.nodes) > 1


def test_branches_of_drawn_texts_say_how_many_pass(drawn_trace):
    figure = beam_tree.beam_tree([drawn_trace])
    words = [words.text for words in figure.layout.annotations]
    assert "<b>sample" in words[0] and words[0].endswith("6 texts")
    (tree,) = beam_tree._info([drawn_trace]).trees
    first = next(node for node in tree.nodes if node.texts > 1)
    assert any(f"<b>×{first.texts}</b>" in text for text in words)
    assert sum("<b>text " in text for text in words) == len(tree.tips)
    hovers = [text for data in figure.data for text in data.hovertext or ()]
    assert any(f"{first.texts} of 6 texts pass here" in text for text in hovers)


def test_texts_drawn_alike_throughout_are_a_tree_of_one_line(greedy_trace):
    twice = dataclasses.replace(greedy_trace, sequences=greedy_trace.sequences * 2)
    assert beam_tree.needs(twice) and not beam_tree.needs(greedy_trace)
    (tree,) = beam_tree._info([twice]).trees
    assert {node.texts for node in tree.nodes} == {2}


def test_groups_have_colours_names_and_rows_of_their_own(embedded):
    traces = embedded.compare(PROMPT, [SEARCHES[2]], max_new_tokens=6)
    (tree,) = beam_tree._info(traces).trees
    assert {edge.group for edge in tree.edges} == {0, 1}
    figure = beam_tree.beam_tree(traces)
    named = {
        data.name: data.line.color for data in figure.data if data.name in ("group 1", "group 2")
    }
    assert len({*named.values()}) == 2
    drawn = {data.line.color for data in figure.data if data.mode == "lines" and not data.name}
    assert {*named.values()} <= drawn
    tips = [words.text for words in figure.layout.annotations if "#" in words.text]
    assert {text.rsplit("· ", 1)[1] for text in tips} == {"group 1", "group 2"}


def test_a_hover_text_tells_the_progress_under_constraints(embedded):
    own = {"force_words": ["river", "of art"], "num_beams": 4}
    traces = embedded.compare(PROMPT, [("constrained_beam_search", own)], max_new_tokens=6)
    hovers = [text for data in beam_tree.beam_tree(traces).data for text in data.hovertext or ()]
    assert any("constraints met: 1 of 2 (tokens 1/1, 0/2)" in text for text in hovers)
    assert any("forced: only a constraint put it up" in text for text in hovers)


def test_lists_for_other_figures_stay_out_of_the_hover_text(embedded):
    traces = embedded.compare(PROMPT, ["contrastive_search"], max_new_tokens=4)
    hovers = [text for data in beam_tree.beam_tree(traces).data for text in data.hovertext or ()]
    assert hovers and not any("similarities" in text for text in hovers)


def test_a_tree_that_goes_on_from_a_text_begins_behind_it(beam_trace, greedy_trace):
    before = tuple(step.token for step in greedy_trace.steps[:2])
    (tree,) = beam_tree._info([dataclasses.replace(beam_trace, prefix=before)]).trees
    assert tree.root == (2, 0) and tree.depth == 5
    assert {node.place.depth for node in tree.nodes} == {3, 4, 5}
