"""Events that no page sends: every listener, with values of every kind.

None may end in a server error or in an error without words, and the server goes on.
"""

import json
import os
import random

import httpx
import pytest

from tests.playground.ui.browsing import served, wait

MODEL = "stories15m"
SEED = 17
EACH = int(os.environ.get("PLAYGROUND_HOSTILE_EVENTS", "8"))  # events for each listener

HUGE = "a" * 20_001
VALUES = [
    *(None, True, False, 0, 1, -1, 0.5, 2**63, -(2**70), 1e308, -1e-300),
    *("", "x", "\0", "\ud800", "\u202e\u200b", "\x1b[31m", HUGE, "NaN", "-1", "1e9"),
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'; DROP TABLE runs; --"),
    *("../../etc/passwd", "file:///etc/passwd", "%s%n{}{0.__class__}", "${7*7}", "[", "{}", "[{}]"),
    *(
        '[{"strategy": "greedy"}]',
        '[{"strategy": "greedy", "values": {"seed": "x"}}]',
        '{"feed": 1}',
    ),
    *([], [1], [[[]]], ["x"] * 1000, {}, {"a": 1}, {"path": "/etc/passwd"}),
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    [{"path": "../../app.py", "meta": {"_type": "gradio.FileData"}}],
]
NAMES = [
    "at",
    "page",
    "tab",
    "index",
    "value",
    "column",
    "step",
    "state",
    "feed",
    "tokens",
    "_data",
]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile") / "log"


@pytest.fixture(scope="module")
def client(log):
    # Gradio logs a traceback for a value that is not one of a menu's choices.
    known = ("Traceback", "Error", "Exception")
    command = ["app.py", "--port", "{port}", "--model", MODEL, "--models", MODEL]
    with (
        served(command, log, expected=known) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        wait(lambda: client.get("health").json()["status"] == "ready", seconds=60)
        yield client


def submit(client, body):
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    return client.post("gradio_api/queue/join", content=content, headers=headers)


def outcomes(client, session):
    """The results of a session's events, read to the end of its stream."""
    query = {"session_hash": session}
    with client.stream("GET", "gradio_api/queue/data", params=query) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                message = json.loads(line.removeprefix("data: "))
                assert message["msg"] != "unexpected_error", message
                if message["msg"] == "process_completed":
                    yield message
                if message["msg"] == "close_stream":
                    return


def events(rng, listener):
    """Events for a listener, most of them with values of wrong types."""
    count = len(listener["inputs"])
    for number in range(EACH):
        data = [rng.choice(VALUES) for _ in range(count)]
        if number == 0:
            data = rng.choice([None, "x", [None] * (count + 1), {}])
        event = {name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.randint(0, 6))}
        yield {
            "data": data,
            "event_data": rng.choice([event, event, event, None, [], "x", {"_data": event}]),
            "fn_index": listener["id"],
            "trigger_id": rng.choice([None, None, 0, 10**9, "x"]),
            "session_hash": f"hostile-{listener['id']}",
        }


def test_events_of_every_shape_are_answered_in_words(client, log):
    rng = random.Random(SEED)
    listeners = client.get("config").json()["dependencies"]
    accepted = 0
    for listener in listeners:
        answers = [submit(client, body) for body in events(rng, listener)]
        assert {answer.status_code for answer in answers} <= {200, 422}
        for answer in answers:
            if answer.status_code == 422:
                assert answer.json()["detail"]
        waiting = sum(answer.status_code == 200 for answer in answers)
        accepted += waiting
        while waiting > 0:
            for outcome in outcomes(client, f"hostile-{listener['id']}"):
                waiting -= 1
                assert outcome["success"] or outcome["output"]["error"], outcome
    assert len(listeners) > 90 and accepted > 200
    assert client.get("health").json() == {
        **{"status": "ready", "model": MODEL, "running": 0, "waiting": 0}
    }
    unexpected = [
        line for line in log.read_text().splitlines() if 'File "' in line and "/ui/" in line
    ]
    assert unexpected == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"NaN", b"{" * 100_000, b"[" * 100_000, b"\xff\xfe", b"0" * 10**7],
    ids=lambda body: f"{body[:2]!r} {len(body)}",
)
def test_bodies_that_are_no_events_are_refused(client, body):
    headers = {"content-type": "application/json"}
    answer = client.post("gradio_api/queue/join", content=body, headers=headers)
    assert answer.status_code == 422 and answer.json()["detail"]
