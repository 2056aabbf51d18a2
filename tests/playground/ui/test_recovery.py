"""Reloads, lost connections, restarted servers, and models that cannot be loaded."""

import socket
import threading
from contextlib import closing, contextmanager, suppress

import pytest

from playground import Playground
from playground.ui.compare.presets import FIRST
from playground.ui.compare.runs import LEFT_WAIT
from tests.playground.ui.browsing import (
    cards,
    forked,
    length,
    on_tab,
    opened,
    over,
    ready,
    running,
    served,
    set_card,
    states,
    stored,
    tab,
    text_of,
    visiting,
    wait,
)
from tests.tiny import tiny

LONG = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trouble")


@pytest.fixture(scope="module")
def address(folder):
    """A server that stores one comparison, and offers a model that does not exist."""
    models = f"stories15m,{folder / 'nothing'}"
    options = ["--boards", "1", "--models", models, "--max-new-tokens", LONG]
    with served(["app.py", "--port", "{port}", *options], folder / "log") as address:
        yield address


@pytest.fixture
def page(browser, address):
    with opened(browser, address) as page:
        ready(page)
        length(page, 5)
        yield page


def texts(page):
    return [text_of(page, index) for index in range(page.locator("#live .column").count())]


def kept(page, prompt):
    """Enter a prompt and wait until the browser has stored the form."""
    state = "JSON.parse(sessionStorage.getItem('decoding-playground') ?? '{}').state"
    before = page.evaluate(state)
    page.fill("#prompt textarea", prompt)
    page.wait_for_function(f"before => {state} && {state} !== before", arg=before)


def shows(page, words):
    page.wait_for_function(
        "words => document.querySelector('#live .status')?.innerText.includes(words)", arg=words
    )


# Reloads


def test_a_reload_restores_columns_colours_form_and_tab(page):
    kept(page, "My garden has")
    with running(page):
        pass
    page.select_option("#live-background", "surprisal")
    tab(page, "Charts")
    before = texts(page)
    page.reload()
    ready(page)
    wait(lambda: texts(page) == before)
    assert page.input_value("#prompt textarea") == "My garden has"
    assert page.input_value("#shared-max_new_tokens input >> nth=0") == "5"
    assert page.input_value("#live-background") == "surprisal"
    on_tab(page, "Charts")
    page.wait_for_selector("#table [role=gridcell]", state="attached")
    forked(page, 0, 1, " also")
    assert " also" in text_of(page, 1)


def test_the_form_is_restored_if_the_server_has_dropped_the_columns(browser, address, page):
    kept(page, "A forgotten run")
    with running(page):
        pass
    with opened(browser, address) as other:
        ready(other)
        length(other, 2)
        with running(other):
            pass
    page.reload()
    ready(page)
    wait(lambda: page.input_value("#prompt textarea") == "A forgotten run")
    assert texts(page) == [""] * 3
    with running(page):
        pass
    assert all(texts(page))


def test_a_reload_during_a_run_continues_it(page):
    length(page, LONG)
    page.click("#run")
    page.wait_for_selector("#live .token >> nth=8")
    before = text_of(page, 0)
    page.reload()
    wait(lambda: len(text_of(page, 0)) > len(before))
    assert text_of(page, 0).startswith(before)
    page.wait_for_selector("#stop:not([disabled])")
    page.click("#stop")
    shows(page, "Stopped. The text so far is kept.")
    ready(page)
    length(page, 3)
    with running(page):
        pass
    assert states(page) == ["done"] * 3


def test_leaving_the_page_stops_a_paused_run(browser, address, page):
    with opened(browser, address) as other:
        ready(other)
        length(other, LONG)
        other.click("#step")
        other.wait_for_selector("#live .token")
        shows(other, "Paused.")
        feed = stored(other, "feed")
        other.goto("about:blank")
        other.wait_for_timeout(1000 * LEFT_WAIT + 2000)
    with over(page):
        # The id of the feed is enough to see the comparison.
        page.evaluate(
            """feed => sessionStorage.setItem('decoding-playground', JSON.stringify({ feed }))""",
            feed,
        )
        page.reload()
    wait(lambda: states(page) == ["stopped"] * 3)
    shows(page, "Stopped because the page was closed.")


def test_six_open_tabs_leave_connections_for_a_seventh(browser, address):
    # The tabs of one profile share six connections to the server.
    with closing(browser.new_context()) as profile:
        for _ in range(6):
            profile.new_page().goto(address)
        page = profile.new_page()
        page.goto(address)
        ready(page)
        length(page, 3)
        with running(page):
            pass
        assert states(page) == ["done"] * 3


# Lost connections


class Cable:
    """A proxy between browser and server whose connections can be cut."""

    def __init__(self, port):
        self._port, self._ends, self._whole = port, set(), True
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._door.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self):
        self._whole = False
        for end in list(self._ends):
            self._close(end)

    def mend(self):
        self._whole = True

    def close(self):
        self.cut()
        self._door.close()

    def _serve(self):
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # no server yet
                self._close(near)
                continue
            self._ends |= {near, far}
            if not self._whole:
                self._close(near)
                self._close(far)
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source, sink):
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass
        self._close(source)
        self._close(sink)

    def _close(self, end):
        self._ends.discard(end)
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def wired(browser, address):
    """A page behind a `Cable`; errors in the console are allowed."""
    cable = Cable(int(address.rsplit(":", 1)[1].strip("/")))
    try:
        with visiting(browser) as page:
            page.goto(cable.address)
            ready(page)
            yield page, cable
    finally:
        cable.close()


def test_a_lost_connection_is_reported_and_the_run_continues_without_loss(browser, address, lab):
    with wired(browser, address) as (page, cable):
        kept(page, "The connection was")
        length(page, 60)
        page.click("#run")
        page.wait_for_selector("#live .token >> nth=8")
        cable.cut()
        shows(page, "The connection to the server was lost. Reconnecting")
        assert text_of(page, 0)
        with over(page):
            cable.mend()
        assert states(page) == ["done"] * 3
        shows(page, "Done in")
        traces = lab.compare("The connection was", FIRST.cards, max_new_tokens=60)
        assert texts(page) == [trace.text for trace in traces]
        assert page.input_value("#prompt textarea") == "The connection was"


def test_a_restarted_server_is_reported_and_a_reload_restores_the_page(browser, folder):
    where = folder / "tiny"
    tiny("llama").module.save_pretrained(where)
    tiny("llama").tokenizer.save_pretrained(where)
    command = ["app.py", "--port", "{port}", "--model", where]
    with served(command, folder / "first") as address, wired(browser, address) as (page, cable):
        kept(page, "Two servers")
        length(page, 3)
        with running(page):
            pass
        before = texts(page)
        page.wait_for_timeout(2_500)  # until the form is stored and no event is under way
        cable.cut()
        # Gradio raises for an event of a page that an earlier server rendered.
        expected = ("Exception in ASGI application", "Traceback", "KeyError")
        with served(command, folder / "second", expected) as other:
            cable._port = int(other.rsplit(":", 1)[1].strip("/"))
            cable.mend()
            assert texts(page) == before  # reading is not disturbed
            page.click("#run")
            shows(page, "The server restarted. Reload this page to continue")
            assert texts(page) == before
            page.reload()
            ready(page)
            wait(lambda: page.input_value("#prompt textarea") == "Two servers")
            with running(page):
                pass
            assert texts(page) == before


# Several models


def choose_model(page, name):
    page.click("#model input")
    page.get_by_role("option", name=name).click()


def load_model(page, name):
    """Choose another model; waits until the strategies that it offers have arrived."""
    before = cards(page, "catalog")
    choose_model(page, name)
    wait(lambda: cards(page, "catalog") != before, seconds=120)


def test_another_model_runs_the_same_cards_and_old_columns_keep_their_model(page, lab):
    set_card(page, 2, temperature=0.5)
    with running(page):
        pass
    first = texts(page)
    load_model(page, "stories15m")
    ready(page)
    assert cards(page)[2]["values"]["temperature"] == "0.5"
    assert texts(page) == first
    forked(page, 0, 1, " really")
    [plain] = lab.compare(FIRST.prompt, ["greedy"], max_new_tokens=5)
    prefix = [*plain.sequences[0].token_ids[:1], *lab.token_decoder.ids(" really")]
    [fork] = lab.compare(FIRST.prompt, ["greedy"], prefix=prefix, max_new_tokens=5)
    assert text_of(page, 1) == "".join(token.text for token in fork.prefix) + fork.text
    with running(page):
        pass
    other = Playground("stories15m")
    choices = [*FIRST.cards[:2], ("sample", {**FIRST.cards[2][1], "temperature": 0.5})]
    traces = other.compare(FIRST.prompt, choices, max_new_tokens=5)
    assert texts(page) == [trace.text for trace in traces]
    load_model(page, "smollm2")
    ready(page)
    with running(page):
        pass
    assert texts(page) == first


def test_a_model_that_cannot_be_loaded_is_reported_and_the_old_one_can_be_chosen_again(page):
    choose_model(page, "nothing")
    page.wait_for_selector("#loading >> text=could not be loaded: cannot find model")
    page.wait_for_selector("#run[disabled]")
    choose_model(page, "smollm2")
    page.wait_for_selector("#loading", state="hidden")
    ready(page)
    with running(page):
        pass
    assert states(page) == ["done"] * 3
