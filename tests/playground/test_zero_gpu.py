"""Runs on a ZeroGPU Space, with a stand-in for `spaces.GPU` that really forks and pickles."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from engine.run_control import RunControl
from playground import Playground, PlaygroundError
from playground.zero_gpu import ZeroGpuPlayground
from tests.forking_gpu import ForkingGpu
from tests.tiny import tiny

CHOICES = ["greedy", ("sample", {"num_return_sequences": 2}), ("beam_search", {"num_beams": 3})]


@pytest.fixture
def gpu():
    return ForkingGpu()


@pytest.fixture
def lab(gpu):
    return ZeroGpuPlayground(tiny("llama"), gpu=gpu)


def timeless(traces):
    return [(trace.strategy, trace.sequences, trace.steps, trace.stop) for trace in traces]


def test_a_comparison_is_one_call_with_the_same_traces(lab, gpu):
    plain = Playground(tiny("llama"))
    settings = {"max_new_tokens": 8, "seed": 3}
    found = lab.compare("hello", CHOICES, **settings)
    assert timeless(found) == timeless(plain.compare("hello", CHOICES, **settings))
    assert [process.pid != os.getpid() for process in gpu.processes] == [True]


def test_the_duration_grows_with_the_tokens_up_to_the_limit(lab, gpu):
    lab.limits = replace(lab.limits, seconds=30.0)
    for tokens in (8, 40, 250):
        next(lab.stream("hello", ["greedy"], max_new_tokens=tokens))
    short, long, longest = gpu.seconds
    assert short < long < longest == 30


def test_a_text_is_scored_and_prompts_run_together(lab):
    plain = Playground(tiny("llama"))
    [scored] = lab.score("hello", " world", ["greedy"])
    assert timeless([scored]) == timeless(plain.score("hello", " world", ["greedy"]))
    runs = [("one", "greedy"), ("two", "greedy")]
    updates = list(lab.stream_each(runs, max_new_tokens=3))
    assert {update.run for update in updates if update.trace} == {0, 1}


def test_invalid_input_raises_before_a_gpu_is_requested(lab, gpu):
    with pytest.raises(PlaygroundError, match="empty"):
        lab.stream("", ["greedy"])
    with pytest.raises(PlaygroundError, match="more than the 256"):
        lab.stream("hello", ["greedy"], max_new_tokens=900)
    assert gpu.seconds == []


def test_runs_are_paused_stepped_and_stopped_in_the_fork(lab):
    control = RunControl(paused=True)
    updates = lab.stream("hello", ["greedy"], max_new_tokens=200, stop=control)
    assert len(next(updates).steps) == 1  # the first tick is made at once
    control.step()
    assert len(next(updates).steps) == 1
    threading.Timer(0.3, control.stop).start()
    began = time.monotonic()
    [last] = list(updates)
    assert time.monotonic() - began > 0.2  # it waited
    assert last.trace.stop.rule == "cancelled" and len(last.trace.steps) == 2


def test_an_event_stops_runs_in_the_fork(lab):
    stop = threading.Event()
    updates = lab.stream("hello", ["greedy"], max_new_tokens=240, stop=stop)
    next(updates)
    stop.set()
    [trace] = [update.trace for update in updates if update.trace]
    assert trace.stop.rule == "cancelled" and len(trace.steps) < 240


def test_a_pause_that_is_too_long_ends_the_run(lab):
    control = RunControl(paused=True, timeout=0.2)
    updates = list(lab.stream("hello", ["greedy"], max_new_tokens=20, stop=control))
    assert updates[-1].trace.stop.rule == "cancelled"
    assert control.timed_out


def test_a_gpu_that_is_taken_away_is_an_error_in_words(lab, gpu):
    control = RunControl(paused=True)
    updates = lab.stream("hello", ["greedy"], max_new_tokens=20, stop=control)
    next(updates)
    os.kill(gpu.processes[0].pid, signal.SIGKILL)
    with pytest.raises(PlaygroundError, match="the GPU was taken away"):
        next(updates)


def test_closing_the_updates_ends_the_fork_and_leaves_no_file(lab, gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    control = RunControl()
    updates = lab.stream("hello", ["greedy"], max_new_tokens=240, stop=control)
    next(updates)
    updates.close()
    assert not gpu.processes[0].is_alive()
    control.stop()
    assert list(tmp_path.iterdir()) == []
