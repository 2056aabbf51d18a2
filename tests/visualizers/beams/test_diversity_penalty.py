"""The diversity penalty of groups of beams."""

import dataclasses

import pytest

from tests.conftest import returned, step, trace
from visualizers.beams import diversity_penalty


@pytest.fixture
def groups():
    """Two groups of one beam: the second avoids a token at step 1 and pays for one at step 2."""

    def beam(id, parent, tick, text, event, group, total, penalty, **more):
        notes = {"group": group, "total": total, "penalty": penalty, **more}
        return step(id, parent, tick, text, event, 0.5, **notes)

    steps = [
        beam(0, None, 0, " a", "chosen", 0, -0.5, 0.0, avoided=[]),
        beam(1, None, 0, " b", "pruned", 0, -0.9, 0.0),
        beam(2, None, 0, " b", "chosen", 1, -0.9, 0.0, avoided=[[0, 1.0, -1.5]]),
        beam(3, None, 0, " c", "pruned", 1, -1.2, 0.0),
        beam(4, 0, 1, " d", "returned", 0, -1.0, 0.0, avoided=[]),
        beam(5, 2, 1, " d", "returned", 1, -2.4, 1.0, avoided=[[4, 1.0, -2.4]]),
        beam(6, 2, 1, " e", "pruned", 1, -9.0, 0.0),
    ]
    steps[5] = dataclasses.replace(steps[5], token=steps[4].token)
    best = [returned(steps, (0, 4), -0.5), returned(steps, (2, 5), -1.2)]
    return trace("diverse_beam_search", {"num_beams": 2}, steps, best)


def test_a_group_pays_for_tokens_it_keeps_and_avoids_others_because_of_the_penalty(groups):
    [search] = diversity_penalty._info([groups]).searches
    (free, also_free), (avoiding, paying) = search.rows
    assert free.paid == also_free.paid == 0 and not free.avoided
    assert avoiding.paid == 0 and avoiding.avoided == ((" a", 1.0, -1.5),)
    assert paying.paid == 1.0 and not paying.avoided
    hover = diversity_penalty._figure(diversity_penalty._info([groups])).data[0].hovertext
    assert "<b>␣a</b> -0.50 − 1 = -1.50 (worst kept: -0.90)" in hover[1][0]


def test_a_token_that_loses_without_the_penalty_too_is_not_avoided(groups):
    steps = list(groups.steps)
    weak = {**steps[2].notes, "avoided": [[0, 1.0, -1.95]]}
    steps[2] = dataclasses.replace(steps[2], notes=weak)
    [search] = diversity_penalty._info([dataclasses.replace(groups, steps=tuple(steps))]).searches
    assert not search.rows[1][0].avoided


def test_real_groups_pay_what_their_steps_recorded(strategy_runs):
    [search] = diversity_penalty._info(strategy_runs).searches
    assert len(search.rows) == 3 and {len(row) for row in search.rows} == {10}
    paid = sum(s.notes["penalty"] for s in strategy_runs[2].steps if s.event != "pruned")
    assert sum(cell.paid for row in search.rows for cell in row) == pytest.approx(paid)
    assert any(cell.avoided for row in search.rows for cell in row)
    assert not any(cell.paid or cell.avoided for cell in search.rows[0])
