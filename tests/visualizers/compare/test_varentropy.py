"""Entropy against varentropy."""

import visualizers
from tests.visualizers.samples import Word, chain, forked, version_1
from visualizers.compare import varentropy


def test_the_dashed_lines_are_the_medians_of_all_tokens():
    first = chain(
        "greedy", [Word(1, entropy=1.0, varentropy=2.0), Word(2, entropy=3, varentropy=8)]
    )
    second = chain("sample", [Word(1, entropy=2.0, varentropy=5.0), Word(2)])
    info = varentropy._info([first, second])
    assert (info.median_entropy, info.median_varentropy) == (2.0, 5.0)
    assert [len(run.points) for run in info.runs] == [2, 1]
    assert info.runs[0].points[1] == (1, " w2", 3, 8)


def test_traces_without_varentropy_are_left_out_and_others_keep_their_colour(real):
    info = varentropy._info([version_1(real["greedy"]), real["sample"]])
    assert [run.number for run in info.runs] == [1]
    assert not varentropy.needs(version_1(real["greedy"]))


def test_the_points_are_those_that_real_steps_recorded(real):
    (run,) = varentropy._info([real["sample"]]).runs
    path = visualizers.best_path(real["sample"])
    assert [(point.entropy, point.varentropy) for point in run.points] == [
        (step.distribution.raw_entropy, step.distribution.raw_varentropy) for step in path
    ]


def test_the_highlighted_token_has_a_ring_in_every_run(real):
    traces = [real["greedy"], forked(real["sample"], 3)]
    assert len(varentropy.varentropy(traces).data) == 2
    assert len(varentropy.varentropy(traces, 4).data) == 4
    assert len(varentropy.varentropy(traces, 1).data) == 3  # the fork starts later
