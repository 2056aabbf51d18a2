"""The documented examples of a new strategy and a new view work as one dropped-in file each.

Both files are saved in a copy of the repository, where linter, type checker, contract tests and
the HTML report must accept them without any other change.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests import processes
from tests.documentation import REPOSITORY, code, code_file
from tests.tiny import tiny

EXAMPLES = ("Add a strategy", "Add a view")
COPIED = ("engine", "strategies", "visualizers", "playground", "tests")
# The libraries are imported before pytest starts, and it warns about that.
PLUGINS = ("-p", "only_new", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")
CONTRACT_TESTS = (
    "tests/strategies/test_contract.py",
    "tests/visualizers/test_views.py",
    "tests/playground/export/test_code.py",
)
# Leaves out tests that do not depend on the new strategy or view.
ONLY_NEW = """
def pytest_collection_modifyitems(items):
    new = {new}
    items[:] = [
        item
        for item in items
        if hasattr(item, "callspec") and new & set(item.callspec.id.split("-"))
    ]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with both examples in it."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(REPOSITORY / name, folder)
    (folder / "models").symlink_to(REPOSITORY / "models")
    for heading in EXAMPLES:
        file = folder / code_file(heading)
        assert not file.exists(), f"{file} is taken"
        file.write_text(code(heading), "utf-8")
    new = {Path(code_file(heading)).stem for heading in EXAMPLES}
    (folder / "only_new.py").write_text(ONLY_NEW.replace("{new}", repr(new)), "utf-8")
    return folder


def run(checkout: Path, *command: str) -> str:
    """Run a Python module in the copy and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "NO_COLOR": "1"}
    done = processes.run(["-m", *command], cwd=checkout, env=environment)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_linter_and_formatter_accept_the_examples(checkout: Path) -> None:
    files = [code_file(heading) for heading in EXAMPLES]
    run(checkout, "ruff", "check", "--no-cache", *files)
    run(checkout, "ruff", "format", "--no-cache", "--check", *files)


def test_type_checker_accepts_the_examples(checkout: Path) -> None:
    # The cache that `make check` fills: without it every dependency is checked again.
    cache = REPOSITORY / ".mypy_cache"
    run(checkout, "mypy", f"--cache-dir={cache}", *(code_file(heading) for heading in EXAMPLES))


def test_contract_tests_pass_with_the_examples(checkout: Path) -> None:
    printed = run(checkout, "pytest", *PLUGINS, *CONTRACT_TESTS, "-v")
    for heading in EXAMPLES:
        assert f"[{Path(code_file(heading)).stem}" in printed, "its contract tests have run"


def test_report_shows_the_examples(checkout: Path, tmp_path: Path) -> None:
    model = tiny("llama")
    model.module.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    strategy, view = (Path(code_file(heading)).stem for heading in EXAMPLES)
    report = tmp_path / "report.html"
    command = ["playground", "compare", "hi", "--run", "greedy", "--run", strategy]
    options = ["--max-new-tokens", "4", "--model", str(tmp_path / "model"), "--html", str(report)]
    run(checkout, *command, *options)
    html = report.read_text("utf-8")
    assert strategy in html and title_of(view, checkout) in html


def title_of(view: str, checkout: Path) -> str:
    """Return the title of a view in the copy."""
    source = f"import visualizers; print({{v.id: v.title for v in visualizers.views()}}[{view!r}])"
    return processes.run(["-c", source], cwd=checkout).stdout.strip()
