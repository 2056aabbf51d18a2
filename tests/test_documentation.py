"""The Python examples in README and docs run as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from playground import Playground
from strategies import registered
from tests.documentation import REPOSITORY, code, pages


def test_every_strategy_is_documented() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    missing = [id for id in registered() if f"`{id}`" not in text]
    assert not missing, f"not in README or docs: {missing}"


def test_space_installs_the_pinned_gradio() -> None:
    requirements = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    pinned = re.search(r"^gradio==(\S+)$", requirements, re.M)
    named = re.search(r'^sdk_version: "?([\d.]+)"?$', readme, re.M)
    assert pinned and named and pinned[1] == named[1]


def test_python_example_runs(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("playground.Playground", lambda: embedded)
    exec(code("From Python"), {})
    assert (tmp_path / "beam.json").is_file()


def test_speculation_example_runs(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("playground.Playground", lambda: embedded)
    exec(code("Drafts: do they pay, and do they change anything?"), {})
    assert capsys.readouterr().out


def test_transformers_example_runs(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.models.loading.load", lambda: embedded.model)
    exec(code("In plain transformers"), {})
    printed = capsys.readouterr().out
    runs = ["contrastive_search", ("beam_search", {"num_beams": 4})]
    for trace in embedded.compare("The quick brown fox", runs, max_new_tokens=24):
        assert trace.text.strip() in printed
