"""The house: who may import whom, and a README that says what is there."""

import ast
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import engine.strategy
from playground import Playground
from strategies import registered
from tests.tiny import SIZE, tiny
from visualizers import registry as _register

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("engine", "strategies", "visualizers", "playground")
FILES = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]

ALLOWED = {
    "engine": {"engine"},
    "strategies": {"engine", "strategies"},
    "visualizers": {"engine", "visualizers"},
    "playground": set(PACKAGES),
}

# What a figure may read: what a run did, round by round, and what a detector found.
RECORDS = {
    "engine.trace",
    "engine.trace.rounds",
    "engine.watermark.detection",
    "engine.watermark.windows",
}

RECORD = [REPOSITORY / "engine/trace" / name for name in ("trace.py", "types.py", "file_format.py")]


def imports(path: Path) -> set[str]:
    """Modules a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_arrows_point_one_way(path: Path) -> None:
    package, *inner = path.relative_to(REPOSITORY).parts
    modules = imports(path)
    roots = {module.split(".")[0] for module in modules}
    assert roots & set(PACKAGES) <= ALLOWED[package]
    assert "gradio" not in roots or inner[0] == "ui"
    assert "plotly" not in roots or package == "visualizers" or inner[0] in ("ui", "export")
    if package == "visualizers":
        assert {module for module in modules if module.startswith("engine")} <= RECORDS
    if path.name == "errors.py" or path in RECORD:
        assert roots <= {*sys.stdlib_module_names, "engine"}


def test_comparing_needs_no_page_and_no_figures() -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['gradio', 'plotly', 'pandas', 'gguf']))\n"
        "from playground import Playground\n"
        "import playground.__main__\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def readme() -> str:
    return (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_strategy() -> None:
    text = readme()
    for id, strategy in registered().items():
        assert f"| `{id}` |" in text
        assert strategy.summary in text


def test_the_space_installs_the_gradio_it_names() -> None:
    pinned = re.search(r"^gradio==(\S+)$", (REPOSITORY / "requirements.txt").read_text(), re.M)
    named = re.search(r'^sdk_version: "?([\d.]+)"?$', readme(), re.M)
    assert pinned and named and pinned[1] == named[1]


def example(heading: str) -> str:
    """The first Python block under a heading of the README."""
    section = readme().split(f"{heading}\n")[1]
    return section.split("```python\n")[1].split("```")[0]


def test_the_readmes_strategy_runs_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.strategy, "_REGISTER", dict(engine.strategy._REGISTER))
    module = types.ModuleType("second_best")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(example("### Add a strategy"), module.__dict__)
    lab = Playground(tiny("llama"))
    second, best = lab.compare(
        "hi", [("second_best", {"place": 2}), ("second_best", {"place": 1})], max_new_tokens=5
    )
    [greedy] = lab.compare("hi", ["greedy"], max_new_tokens=5)
    assert [step.rank for step in second.steps] == [2] * 5
    assert best.sequences[0].token_ids == greedy.sequences[0].token_ids


def test_the_readmes_view_draws_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_register, "_REGISTRY", {})
    scope: dict[str, Any] = {"__name__": "kept"}
    exec(example("### Add a view"), scope)
    runs = ["greedy", ("sample", {"top_k": 3})]
    traces = Playground(tiny("llama")).compare("hi", runs, max_new_tokens=4)
    [view] = _register.applicable(traces)
    assert scope["_info"](traces)[1] == ("sample", 1, [3, 3, 3, 3])
    assert view.draw(traces).data[0].y == (SIZE,) * 4


def test_the_readmes_python_runs_as_written(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("playground.Playground", lambda: embedded)
    exec(example("## From Python"), {})
    assert (tmp_path / "beam.json").is_file()


def test_the_readmes_race_runs_as_written(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("playground.Playground", lambda: embedded)
    exec(example("## Drafts: do they pay, and do they change anything?"), {})
    printed = capsys.readouterr().out
    assert "All 8 tokens are the same." in printed and "50 draws, chi-square" in printed


def test_the_readmes_transformers_run_as_written(
    embedded: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.models.loading.load", lambda: embedded.model)
    exec(example("## In plain transformers"), {})
    printed = capsys.readouterr().out
    [contrastive] = embedded.compare(
        "The quick brown fox", ["contrastive_search"], max_new_tokens=24
    )
    [beams] = embedded.compare(
        "The quick brown fox", [("beam_search", {"num_beams": 4})], max_new_tokens=24
    )
    assert contrastive.text in printed and beams.text.strip() in printed
