"""Trace files with anything in them: they are refused in words, or shown, saved and drawn.

PLAYGROUND_HOSTILE_TRACES sets the number of files.
"""

import copy
import json
import os
import random

import pytest

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import dump_traces
from playground import Playground, metrics
from playground.export.report import report
from playground.ui.compare.export import read_traces
from tests.draft_models import draft
from tests.tiny import tiny
from visualizers import applicable, labels

FILES = int(os.environ.get("PLAYGROUND_HOSTILE_TRACES", "70"))
VALUES = [
    *(None, True, 0, -1, 10**30, 1e308, -(2**63), float("nan"), float("inf")),
    *("x", "</script><script>alert(1)</script>", "\ud800", "\x00", "9" * 5000, "{0.__class__}"),
    *([], [[]], [1, 2, 3], {}, {"a": {}}, {"version": 3}, "../../etc/passwd", "\u202e\u200b"),
]


@pytest.fixture(scope="module")
def files():
    """The JSON values of valid files, one for each kind of run."""
    lab = Playground(tiny("llama"))
    choices = [
        ("sample", {"num_return_sequences": 2, "top_p": 0.9}),
        ("beam_search", {"num_beams": 3}),
        ("diverse_beam_search", {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0}),
        ("constrained_beam_search", {"num_beams": 3, "force_words_ids": [[5, 6]]}),
        ("contrastive_search", {"penalty_alpha": 0.5, "top_k": 3}),
        ("dola", {"dola_layers": "high"}),
        ("speculative", {"assistant_model": draft("llama", "good"), "num_assistant_tokens": 3}),
    ]
    traces = lab.compare("hello", choices[:6], max_new_tokens=5)
    traces += lab.compare("hello", choices[6:], max_new_tokens=5)
    return [json.loads(dump_traces([trace])) for trace in traces]


def places(value, place=()):
    """The places of all values in JSON data."""
    yield place
    if isinstance(value, dict | list):
        names = value if isinstance(value, dict) else range(len(value))
        for name in names:
            yield from places(value[name], (*place, name))


def damaged(data, rng):
    """JSON data with one value replaced or removed."""
    *path, last = rng.choice(list(places(data))[1:])
    copied = copy.deepcopy(data)
    inside = copied
    for name in path:
        inside = inside[name]
    if rng.random() < 0.15:
        del inside[last]
    else:
        inside[last] = rng.choice(VALUES)
    return copied


def test_files_with_anything_in_them_are_refused_or_shown(files, tmp_path):
    rng, opened, file = random.Random(1), 0, tmp_path / "traces.json"
    for number in range(FILES):
        data = damaged(files[number % len(files)], rng)
        file.write_text(json.dumps(data))
        try:
            comparison = read_traces(str(file), Limits())
        except PlaygroundError:
            continue
        opened += 1
        traces, position = comparison.traces, rng.choice([None, 0, 3, 99])
        html = report(traces)
        assert "<script>alert" not in html
        texts = [html, dump_traces(traces), metrics.as_csv(traces, labels(traces))]
        drawn = [view.draw_or_log(traces, position) for view in applicable(traces)]
        texts += [figure.to_json() for figure in drawn if figure is not None]
        for text in texts:
            text.encode()  # as the server does
    assert 0.05 * FILES < opened < 0.95 * FILES


@pytest.mark.parametrize("text", ["", "0", "[]", "{}", "[" * 100_000, '{"version": 9}', "[[[]]]"])
def test_files_of_another_kind_are_refused(text, tmp_path):
    file = tmp_path / "traces.json"
    file.write_text(text)
    with pytest.raises(PlaygroundError):
        read_traces(str(file), Limits())
