"""README and documentation: their Python runs as written, and they describe what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from playground import Playground
from playground.cli.main import main
from strategies import registered
from tests.documentation import REPOSITORY, pages

# Run elsewhere: http-api.md needs a server (tests/playground/ui/test_api.py), the files of
# extending.md are saved in a copy of the repository (tests/test_extending.py).
ELSEWHERE = {"http-api.md", "extending.md"}
PROGRAMS = [
    pytest.param(code, id=f"{page.relative_to(REPOSITORY)}-{number}")
    for page in pages()
    if page.name not in ELSEWHERE
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("code", PROGRAMS)
def test_python_example_runs_as_written(
    code: str, embedded: Playground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DECODING_PLAYGROUND_CACHE", str(tmp_path))
    monkeypatch.setattr("playground.Playground", lambda: embedded)
    monkeypatch.setattr("engine.models.loading.load", lambda: embedded.model)
    exec(code, {})


def test_readme_lists_every_strategy_with_its_summary() -> None:
    readme = read("README.md")
    for id, strategy in registered().items():
        assert f"| `{id}` | {strategy.summary} |" in readme


def test_strategies_page_describes_every_strategy_and_setting() -> None:
    found = re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", read("docs/strategies.md"), re.M | re.S)
    sections = dict(found)
    assert sections.keys() == registered().keys()
    for id, strategy in registered().items():
        missing = [name for name in strategy.own_settings if f"`{name}`" not in sections[id]]
        assert not missing, f"docs/strategies.md does not mention {missing} of {id}"


def test_command_line_page_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    found = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    listed = re.findall(r"^\| `(\w+)", read("docs/command-line.md"), re.MULTILINE)
    assert found and set(found) == set(listed)


def test_screenshots_are_small_webp_files() -> None:
    images = list((REPOSITORY / "docs" / "images").iterdir())
    assert images
    for image in images:
        assert image.suffix == ".webp" and image.stat().st_size < 200_000


def test_space_installs_the_pinned_gradio() -> None:
    pinned = re.search(r"^gradio==(\S+)$", read("requirements.txt"), re.MULTILINE)
    named = re.search(r'^sdk_version: "?([\d.]+)"?$', read("README.md"), re.MULTILINE)
    assert pinned and named and pinned[1] == named[1]
