"""Traces and their files."""

import json
from pathlib import Path

import pytest

from engine.errors import PlaygroundError
from engine.trace import EVENTS, Trace
from playground import Playground
from tests.tiny import tiny

RUNS = [
    "greedy",
    ("sample", {"num_return_sequences": 2, "top_p": 0.8}),
    ("beam_search", {"num_beams": 3, "num_return_sequences": 2}),
    ("beam_sample", {"num_beams": 2}),
]


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    lab = Playground(tiny("llama"))
    return lab.compare("a 🌟 is born", RUNS, max_new_tokens=15, repetition_penalty=1.1, seed=2)


def test_a_trace_read_from_its_file_is_equal(traces: list[Trace], tmp_path: Path) -> None:
    for trace in traces:
        trace.save(tmp_path / "trace.json")
        assert Trace.load(tmp_path / "trace.json") == trace


def test_the_file_is_strict_json_with_a_version(traces: list[Trace]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    for trace in traces:
        assert json.loads(trace.to_json(), parse_constant=refuse)["version"] == 2


@pytest.mark.parametrize(
    "change",
    [{"version": 99}, {"steps": [[]]}, {"tokens": {}}, {"ticks": [1]}, {"sequences": None}],
    ids=str,
)
def test_an_invalid_trace_file_raises_an_error(
    traces: list[Trace], change: dict[str, object]
) -> None:
    data = json.loads(traces[0].to_json())
    with pytest.raises(PlaygroundError, match="trace"):
        Trace.from_json(json.dumps({**data, **change}))
    for text in ("", "[]", "{}", "null", "3"):
        with pytest.raises(PlaygroundError):
            Trace.from_json(text)


def test_a_step_that_is_its_own_ancestor_raises_an_error(traces: list[Trace]) -> None:
    data = json.loads(traces[0].to_json())
    data["steps"][0][0] = 3
    with pytest.raises(PlaygroundError, match="step 0 has step 3 for its parent"):
        Trace.from_json(json.dumps(data))


def test_steps_form_a_tree_and_sequences_are_paths_in_it(traces: list[Trace]) -> None:
    for trace in traces:
        assert [step.id for step in trace.steps] == list(range(len(trace.steps)))
        assert all(step.parent is None or step.parent < step.id for step in trace.steps)
        assert all(
            step.event in EVENTS and 0 <= step.tick < len(trace.ticks) for step in trace.steps
        )
        for sequence in trace.sequences:
            path = trace.path(sequence.steps[-1])
            assert tuple(step.id for step in path) == sequence.steps
            assert tuple(step.token.id for step in path) == sequence.token_ids
            assert path[-1].event == "returned"


def test_distributions_record_what_each_processor_did(traces: list[Trace]) -> None:
    for trace in traces:
        for step in trace.steps:
            seen = step.distribution
            assert step.token in [candidate.token for candidate in seen.candidates]
            finals = [candidate.final for candidate in seen.candidates]
            assert finals == sorted(finals, reverse=True) and sum(finals) <= 1.001
            assert sum(candidate.raw for candidate in seen.candidates) <= 1.001
            for candidate in seen.candidates:
                assert len(candidate.stages) == len(seen.processors)
                assert candidate.final == candidate.stages[-1]
    assert traces[0].steps[0].distribution.processors == ("repetition_penalty",)
    assert traces[1].steps[0].distribution.processors == ("repetition_penalty", "top_k", "top_p")


def test_two_hundred_steps_stay_under_a_megabyte() -> None:
    lab = Playground(tiny("llama"))
    runs = [*RUNS, ("beam_search", {"num_beams": 5, "num_return_sequences": 5})]
    for trace in lab.compare("go", runs, max_new_tokens=200, min_new_tokens=200):
        assert len(trace.ticks) == 200
        assert len(trace.to_json()) < 1_000_000
