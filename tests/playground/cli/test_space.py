"""The command ``space``: the folder it writes starts with the chosen model and limits."""

import httpx
import pytest

from playground.cli.main import main
from tests import processes
from tests.playground.ui.browsing import answers, free_port, wait


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spaces") / "space"
    words = ["--model", "stories15m", "--max-new-tokens", "77", "--title", "A class: 2026"]
    assert main(["space", str(folder), *words]) == 0
    return folder


def test_the_front_matter_names_the_start_file_and_the_pinned_gradio(folder):
    front = (folder / "README.md").read_text().split("---\n")[1].splitlines()
    values = dict(line.split(": ", 1) for line in front)
    assert values["app_file"] == "start.py" and values["title"] == '"A class: 2026"'
    assert values["sdk"] == "gradio" and values["python_version"] == '"3.12"'
    version = values["sdk_version"].strip('"')
    assert f"gradio=={version}\n" in (folder / "requirements.txt").read_text()


def test_a_space_for_zero_gpu_pins_a_torch_that_it_supports(tmp_path):
    assert main(["space", str(tmp_path / "zero"), "--hardware", "zero-a10g"]) == 0
    lines = (tmp_path / "zero" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("torch")] == ["torch==2.11.0"]


def test_the_space_starts_with_its_model_and_limits(folder, tmp_path, monkeypatch):
    port, log = free_port(), tmp_path / "log"
    monkeypatch.setenv("PLAYGROUND_PORT", str(port))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    server = processes.start(["start.py"], cwd=folder, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}/"
        wait(lambda: answers(address, server, log), seconds=120)
        assert httpx.get(f"{address}health").json()["model"] == "stories15m"
        components = httpx.get(f"{address}config").json()["components"]
        [length] = [
            one["props"]
            for one in components
            if one["props"].get("elem_id") == "shared-max_new_tokens"
        ]
        assert length["maximum"] == 77
    finally:
        server.terminate()
        assert server.wait(timeout=20) == 0


def test_an_existing_folder_is_not_touched(folder, capsys):
    before = (folder / "start.py").read_text()
    assert main(["space", str(folder)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "start.py").read_text() == before
