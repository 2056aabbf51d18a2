"""A real browser on a server of ours: what every test of the page needs."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]

# What the server allows that most files share.
LIMITS = {"--max-new-tokens": 200, "--columns": 5, "--upload-bytes": 3_000_000}

WIDE = {"width": 1400, "height": 1000}


@contextmanager
def served(command, log):
    """Start a server that takes its port as ``{port}``; gives its address."""
    port = free_port()
    words = [sys.executable, *(str(word).format(port=port) for word in command)]
    paths = {**os.environ, "PYTHONPATH": str(ROOT), "GRADIO_ANALYTICS_ENABLED": "False"}
    with log.open("w") as out:
        server = subprocess.Popen(words, cwd=ROOT, env=paths, stdout=out, stderr=out)
    try:
        address = f"http://127.0.0.1:{port}/"
        wait(lambda: answers(address, server, log), seconds=120)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=20)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address, server, log):
    assert server.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False


def wait(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{condition} did not come true in {seconds} s"
        time.sleep(0.1)


@contextmanager
def visiting(browser, viewport=WIDE, reduced_motion=None, lasting=False, **options):
    """A visitor's page, on which nothing is open yet.

    Visitors who come one after the other have the browser's own profile in turn, which keeps the
    page's scripts compiled. Who stays while others come, or comes while another is there, has a
    profile apart, as all tabs of one share six connections to a server.
    """
    [profile, *_] = browser.contexts
    apart = lasting or options or len(profile.pages) > 1
    context = browser.new_context(**options) if apart else profile
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.set_viewport_size(viewport)
    page.emulate_media(reduced_motion=reduced_motion)
    try:
        yield page
    finally:
        (context if apart else page).close()


@contextmanager
def opened(browser, address, query="?__theme=light", **options):
    """A page that may not complain, or ask anybody but its server."""
    requests, complaints = [], []
    with visiting(browser, **options) as page:
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda told: told.type == "error" and complaints.append(told.text))
        # What Gradio's script has on its way when the page is left fails, and it says so.
        page.on("framenavigated", lambda frame: frame.parent_frame or complaints.clear())
        page.goto(address + query)
        yield page
        local = (address, "data:", "blob:")
        foreign = [url for url in requests if not url.startswith(local)]
        assert foreign == [], foreign
        assert complaints == [], complaints


def stored(page, name):
    """A property of the store that all views of the page share."""
    link = "link[rel=modulepreload][href$='compare/web/store.js']"
    script = """async ([link, name]) =>
        (await import(document.querySelector(link).href)).store[name]"""
    return page.evaluate(script, [link, name])


def column(page, index):
    return page.locator("#live .column").nth(index)


def text_of(page, index):
    """The tokens of a column as one text."""
    tokens = column(page, index).locator(".token")
    return "".join(tokens.evaluate_all("tokens => tokens.map(token => token.textContent)"))


def states(page):
    return page.locator("#live .column").evaluate_all(
        "columns => columns.map(c => c.dataset.state)"
    )


_OVER = "document.querySelector('#live [data-over]')?.dataset.over ?? null"


@contextmanager
def running(page):
    """Press Run; at the end of the block wait for the end of the run."""
    with over(page):
        page.click("#run")
        yield


@contextmanager
def over(page):
    """At the end of the block wait for the end of the run that began in it."""
    before = page.evaluate(_OVER)
    yield
    page.wait_for_function(f"before => ({_OVER}) !== before", arg=before, timeout=120_000)
    page.wait_for_selector("#run:not([disabled])")


def ready(page):
    """Wait until the cards are there and Run can be pressed."""
    page.wait_for_selector("#run:not([disabled])", timeout=120_000)


def length(page, tokens):
    """Have runs end after so many tokens."""
    page.fill("#shared-max_new_tokens input[type=number]", str(tokens))
    page.keyboard.press("Tab")


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def on_tab(page, name):
    """Wait until a tab is the one that is open."""
    wait(lambda: page.get_by_role("tab", selected=True).all_inner_texts() == [name])


def downloaded(page, button, folder):
    """Press a button that saves a file; gives the file."""
    with page.expect_download() as download:
        page.click(button)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def said(page, words):
    """Wait for a message with these words, then put all messages away."""
    page.wait_for_selector(f".toast-body >> text={words}")
    page.evaluate("document.querySelectorAll('.toast-close').forEach(button => button.click())")
    page.wait_for_selector(".toast-body", state="detached")


def forked(page, index, at, words):
    """Go on from a token of a column with words of one's own; waits for the end."""
    with over(page):
        column(page, index).locator(".token").nth(at).click()
        page.fill("#live-typing", words)
        page.keyboard.press("Enter")
