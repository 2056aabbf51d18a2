"""What an operator relies on: health, metrics, logs, headers, a password, and an orderly end."""

import json

import httpx
import pytest
from gradio_client import Client

from playground.ui.compare.cards import Card
from playground.ui.compare.links import State, encode
from tests import processes
from tests.playground.ui.browsing import (
    FAULT,
    ROOT,
    answers,
    free_port,
    opened,
    ready,
    running,
    served,
    visiting,
    wait,
)

MODEL = "stories15m"
SECRET = "a prompt that no log may contain"
SERVER = ["app.py", "--port", "{port}", "--model", MODEL, "--log-format", "json"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("operations") / "log"


@pytest.fixture(scope="module")
def address(log):
    with served([*SERVER, "--seconds", "30"], log) as address:
        wait(lambda: httpx.get(f"{address}health").json()["status"] == "ready", seconds=60)
        yield address


@pytest.fixture(scope="module")
def compared(address):
    """Metrics and log lines exist once a comparison has ended."""
    client = Client(address, verbose=False)
    runs, settings = ["greedy", "sample"], {"max_new_tokens": 5}
    return client.predict(SECRET, runs, settings, api_name="/compare")


def metrics(address):
    lines = httpx.get(f"{address}metrics").text.splitlines()
    values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in values}


def test_health_names_the_model_and_the_queue(address):
    answer = httpx.get(f"{address}health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "model": MODEL, "running": 0, "waiting": 0}


def test_health_fails_if_the_model_cannot_be_loaded(tmp_path):
    command = ["app.py", "--port", "{port}", "--model", str(tmp_path / "nothing")]
    with served(command, tmp_path / "log") as address:
        wait(lambda: httpx.get(f"{address}health").json()["status"] == "failed")
        assert httpx.get(f"{address}health").status_code == 503


def test_metrics_count_comparisons_tokens_and_ticks(address, compared):
    found = metrics(address)
    tokens = sum(len(run["token_ids"]) for run in compared)
    assert found['playground_comparisons_total{outcome="done"}'] >= 1
    assert found["playground_tokens_total"] >= tokens > 0
    assert found["playground_tick_seconds_count"] >= 10
    assert found["playground_first_token_seconds_count"] >= 1
    assert found["playground_process_resident_memory_bytes"] > 1e8
    assert found["playground_comparisons_running"] == 0


def test_a_comparison_is_logged_without_its_prompt_and_texts(log, compared):
    wait(lambda: '"event": "comparison"' in log.read_text())
    [line, *_] = [line for line in log.read_text().splitlines() if line.startswith("{")]
    logged = json.loads(line)
    assert logged["strategies"] == ["greedy", "sample"] and logged["outcome"] == "done"
    assert logged["model"] == MODEL and logged["total_s"] >= logged["first_token_s"] > 0
    assert SECRET not in log.read_text()
    assert compared[0]["text"].strip() not in log.read_text()


def test_responses_have_security_headers(address):
    headers = httpx.get(address).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "https:" not in headers["Content-Security-Policy"]


def test_the_policy_blocks_nothing_that_the_page_needs(browser, address):
    with opened(browser, address) as page:  # fails on console errors, which violations are
        ready(page)
        with running(page):
            pass
        page.get_by_role("tab", name="Charts").click()
        page.wait_for_selector("#dock .js-plotly-plot")


def test_without_the_password_nothing_of_the_page_is_served(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_PASSWORD", "open sesame")
    with served(SERVER, tmp_path / "log") as address:
        assert httpx.get(f"{address}config").status_code == 401
        assert httpx.post(f"{address}gradio_api/call/compare", json={"data": []}).status_code == 401
        with pytest.raises(Exception, match="credentials were not provided"):
            Client(address, verbose=False)
        client = Client(address, auth=("visitor", "open sesame"), verbose=False)
        [run] = client.predict("Once", ["greedy"], {"max_new_tokens": 2}, api_name="/compare")
        assert run["text"]
    assert "open sesame" not in (tmp_path / "log").read_text()


def test_a_terminated_server_ends_its_runs_and_exits(browser, tmp_path):
    log, port = tmp_path / "log", free_port()
    address = f"http://127.0.0.1:{port}/"
    server = processes.start(["app.py", "--port", port], cwd=ROOT, stdout=log, stderr=log)
    try:
        wait(lambda: answers(address, server, log), seconds=120)
        long = State("smollm2", "Once", cards=(Card("greedy"),), shared={"max_new_tokens": 900})
        with visiting(browser) as page:
            page.goto(f"{address}#s={encode(long)}&run")
            page.wait_for_selector("#live .column .token", timeout=60_000)
            server.terminate()
            page.wait_for_selector("text=Stopped because the server is shutting down")
            assert server.wait(timeout=20) == 0
    finally:
        server.terminate()
    assert not FAULT.search(log.read_text()), log.read_text()
