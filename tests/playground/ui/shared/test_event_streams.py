"""No event is lost while Gradio closes a page's result stream."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

from tests.playground.ui.browsing import served

SUBMIT = "gradio_api/queue/join"
RESULTS = "gradio_api/queue/data"
EVENT = {"data": [], "fn_index": 0, "session_hash": "visitor"}


SERVER = "tests/playground/ui/shared/stream_server.py"


@contextmanager
def connected(tmp_path, wait):
    """A client of a server on which a closing stream holds the next answer for ``wait`` seconds."""
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
    """The value that the session's next event gives, from a new stream."""
    with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
        done = next(one for one in messages(stream) if one["msg"] == "process_completed")
    return done["output"]["data"][0]


def read_until_closing(stream):
    """Read up to the closing message; the stream is open as long as what this gives."""
    reading = messages(stream)
    while next(reading)["msg"] != "close_stream":
        pass
    return reading


@pytest.mark.parametrize("on_its_way", [False, True], ids=["arrives then", "is on its way"])
def test_an_event_is_answered_when_the_page_has_dropped_its_closing_stream(tmp_path, on_its_way):
    with connected(tmp_path, wait=30) as app, ThreadPoolExecutor() as pool:
        app.post(SUBMIT, json=EVENT).raise_for_status()
        submit = partial(pool.submit, app.post, SUBMIT, json=EVENT)
        if on_its_way:
            submitted = submit(headers={"hold": "yes"})
            app.get("held")
        with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
            reading = read_until_closing(stream)
            if on_its_way:
                app.get("release")
            else:
                submitted = submit()
            time.sleep(0.5)  # a server that does not wait answers now
            assert not submitted.done()
            reading.close()
        submitted.result().raise_for_status()
        assert results(app) > 0


def test_page_that_never_drops_its_stream_delays_the_next_event_only_for_a_moment(tmp_path):
    with connected(tmp_path, wait=0.1) as app:
        app.post(SUBMIT, json=EVENT).raise_for_status()
        with app.stream("GET", RESULTS, params={"session_hash": "visitor"}) as stream:
            reading = read_until_closing(stream)
            app.post(SUBMIT, json=EVENT).raise_for_status()
            assert results(app) > 0
            reading.close()
        assert app.post(SUBMIT, content=b"no json").status_code == 422


def test_a_second_stream_takes_over_from_the_first(tmp_path):
    with connected(tmp_path, wait=30) as app, ThreadPoolExecutor() as pool:
        parameters = {"session_hash": "visitor"}
        app.post(SUBMIT, json=EVENT).raise_for_status()
        with app.stream("GET", RESULTS, params=parameters) as stream:
            read_until_closing(stream).close()
        with app.stream("GET", RESULTS, params=parameters) as first:
            # No event is pending: the stream waits.
            second = pool.submit(results, app)
            assert list(messages(first)) == []  # it ends
            for _ in range(3):
                app.post(SUBMIT, json=EVENT).raise_for_status()
            assert second.result() > 0
