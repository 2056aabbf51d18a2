"""The command line: data on standard output, progress on standard error, errors in one line."""

import io
import json
import sys
from pathlib import Path

import pytest

from engine.models import loading
from engine.trace import Trace
from playground import Playground
from playground.cli import models
from playground.cli.main import main
from strategies import registered
from tests import processes
from tests.tiny import tiny

REPOSITORY = Path(__file__).parents[3]
UNMARKED = (
    "The boats came home late that evening, because the wind had turned and no one on the quay "
    "wanted to say aloud what everyone was thinking about the youngest of the three brothers."
)


def test_compare_prints_texts_and_writes_traces_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, page = tmp_path / "traces.json", tmp_path / "page.html"
    status = main(
        [
            *("compare", "The capital of France is", "--max-new-tokens", "4", "--seed", "1"),
            *("--run", "greedy", "--run", 'beam_search:num_beams=3,early_stopping="never"'),
            *("--run", "sample:top_p=0.9,temperature=0.7", "--set", 'stop_strings=["zebra"]'),
            *("--json", str(traces), "--html", str(page)),
        ]
    )
    printed = capsys.readouterr().out
    assert status == 0 and "# greedy" in printed and " Paris" in printed
    saved = [Trace.from_json(json.dumps(item)) for item in json.loads(traces.read_text())]
    assert [trace.strategy for trace in saved] == ["greedy", "beam_search", "sample"]
    assert saved[1].settings["early_stopping"] == "never" and saved[2].settings["top_p"] == 0.9
    assert saved[0].settings["stop_strings"] == ["zebra"]
    html = page.read_text()
    assert html.startswith("<!doctype html>") and "Paris" in html and "src=" not in html[:5000]


def test_compare_writes_traces_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "Hello", "--max-new-tokens", "2", "--chat", "--json", "-"]) == 0
    [trace] = json.loads(capsys.readouterr().out)
    assert "<|im_start|>user\nHello" in trace["prompt"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["compare", "hi", "--run", "greedi"], "unknown strategy 'greedi'; did you mean 'greedy'?"),
        (["compare", "hi", "--run", "beam_search:num_beam=2"], "did you mean 'num_beams'?"),
        (["compare", "hi", "--run", "sample:top_p"], "a setting is written name=value"),
        (["compare", ""], "the prompt is empty"),
        (["compare", "hi", "--model", "smolm2"], "did you mean 'smollm2'?"),
        (["compare", "hi", "--max-new-tokens", "1", "--json", "/no/such/place"], "cannot write"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_errors_are_one_line_and_exit_status_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.strip().count("\n") == 0 and printed.out == ""


def test_strategies_lists_every_strategy_and_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies"]) == 0
    printed = capsys.readouterr().out
    for strategy in registered().values():
        assert strategy.summary in printed
        assert all(f"{name}: " in printed for name in strategy.own_settings)


def test_detect_finds_the_watermark_of_compare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = '{"bias": 6.0, "seeding_scheme": "lefthash"}'
    run = f"greedy:watermarking_config={mark}"
    assert main(["compare", "My day:", "--run", run, "--max-new-tokens", "40", "--json", "-"]) == 0
    [marked] = json.loads(capsys.readouterr().out)
    texts = {"marked": marked["sequences"][0]["text"], "plain": UNMARKED}
    found = {}
    for name, text in texts.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["detect", "--scheme", "lefthash"]) == {"marked": 0, "plain": 1}[name]
        found[name] = json.loads(capsys.readouterr().out)
    assert found["marked"]["z_score"] > 4 and found["marked"]["marked"] is True
    assert found["plain"]["marked"] is False
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hi " * 9)))
    assert main(["detect", "--scheme", "righthash"]) == 2
    assert "one of 'lefthash', 'selfhash', 'synthid'" in capsys.readouterr().err


def test_models_lists_embedded_models_and_how_they_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    for model in loading.EMBEDDED_MODELS:
        assert model.name in listed
    assert "draft model: smollm2-draft" in listed and "backend: trie" in listed
    assert main(["models", "stories15m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "stories15m" and lines[1].startswith("    device: ")
    assert lines[2] == "    backend: trie" and lines[3].startswith("    accelerations: ")


def test_models_says_why_a_model_runs_on_the_plain_backend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Playground(tiny("t5"))
    monkeypatch.setattr(models, "Playground", lambda name: lab)
    assert main(["models", "t5"]) == 0
    printed = capsys.readouterr().out
    assert f"backend: plain, because {lab.backend_status.reason}" in printed


def test_command_line_runs_as_a_module() -> None:
    done = processes.run(["-m", "playground", "strategies"], cwd=REPOSITORY)
    assert done.returncode == 0 and done.stdout.startswith("greedy")
