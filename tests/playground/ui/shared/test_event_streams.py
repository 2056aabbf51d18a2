"""No event is lost while Gradio closes a page's result stream."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from tests.playground.ui.browsing import served

SUBMIT = "gradio_api/queue/join"
RESULTS = "gradio_api/queue/data"
EVENT = {"data": [], "fn_index": 0, "session_hash": "visitor"}


SERVER = "tests/playground/ui/shared/stream_server.py"


@contextmanager
def connected(tmp_path, wait):
    """A client of a server on which a closing stream holds the next event for ``wait`` seconds."""
    with (
        served([SERVER, "{port}", wait], tmp_path / "log") as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


def messages(stream):
    for line in stream.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def results(app):
    """Read a stream to its end; gives the time at which its event ran."""
    with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
        done = [message for message in messages(stream) if message["msg"] == "process_completed"]
    return done[0]["output"]["data"][0]


def read_until_closing(stream):
    """Read up to the closing message; the stream is open as long as what this gives."""
    reading = messages(stream)
    while next(reading)["msg"] != "close_stream":
        pass
    return reading


def test_event_submitted_while_the_stream_closes_runs_after_the_page_dropped_the_stream(tmp_path):
    with connected(tmp_path, wait=30) as app, ThreadPoolExecutor() as pool:
        app.post(SUBMIT, json=EVENT).raise_for_status()
        with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
            reading = read_until_closing(stream)
            submitted = pool.submit(app.post, SUBMIT, json=EVENT)
            time.sleep(0.5)  # a server that does not wait runs the event now
            dropped = time.time()
            reading.close()
        submitted.result().raise_for_status()
        assert results(app) > dropped


def test_page_that_never_drops_its_stream_delays_the_next_event_only_for_a_moment(tmp_path):
    with connected(tmp_path, wait=0.1) as app:
        app.post(SUBMIT, json=EVENT).raise_for_status()
        with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
            reading = read_until_closing(stream)
            app.post(SUBMIT, json=EVENT).raise_for_status()
            assert results(app) > 0
            reading.close()
        assert app.post(SUBMIT, content=b"no json").status_code == 422
