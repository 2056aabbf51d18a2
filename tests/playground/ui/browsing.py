"""Helpers for tests of the page: a server process, whose log is checked, and a real browser."""

import asyncio
import os
import re
import shutil
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[3]

# The limits of the server that most files share.
LIMITS = {"--max-new-tokens": 200, "--columns": 5, "--upload-bytes": 3_000_000}

WIDE = {"width": 1400, "height": 1000}

# The headless shell takes a third less time than the whole browser.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# Lines of a server's log that report a fault.
FAULT = re.compile(r"Traceback|Warning\b|\bWARNING\b|\bERROR\b|\bException\b")

# Gradio logs this error if it has no session for a page that opens a stream of results: one that
# was left, or whose connection was cut.
LEFT = re.compile(
    r"^ERROR: +Exception in ASGI application\n.*?in sse_stream\n.*?"
    r"^RuntimeError: Caught handled exception, but response already started\.$",
    re.DOTALL | re.MULTILINE,
)


def browser_path():
    """The Chromium on the path."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser on the path; install one of {', '.join(BROWSERS)}"
    return found


@contextmanager
def served(command, log, expected=(), paths=ROOT):
    """Start a server with its port for ``{port}``; yields its address.

    Afterwards the log may contain no traceback and no warning, apart from lines that contain one of
    the ``expected`` texts. Modules are imported from ``paths``.
    """
    port = free_port()
    words = [str(word).format(port=port) for word in command]
    variables = {**os.environ, "PYTHONPATH": str(paths), "GRADIO_ANALYTICS_ENABLED": "False"}
    server = processes.start(words, cwd=ROOT, env=variables, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}/"
        wait(lambda: answers(address, server, log), seconds=120)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=20)
    text = log.read_text()
    faults = [
        line
        for line in LEFT.sub("", text).splitlines()
        if FAULT.search(line) and not any(known in line for known in expected)
    ]
    assert faults == [], text[-20_000:]


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


def wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{condition} is still false after {seconds} s"
        time.sleep(0.1)


def run_async(coroutine):
    """The result of a coroutine; Playwright's event loop occupies this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@contextmanager
def visiting(browser, viewport=WIDE, reduced_motion=None, lasting=False, **options):
    """An empty browser page.

    Pages used one after the other share the browser's profile, which caches compiled scripts. A
    page that stays open while others are used has its own profile, because all tabs of a profile
    share six connections to a server.
    """
    [profile, *_] = browser.contexts
    separate = lasting or options or len(profile.pages) > 1
    context = browser.new_context(**options) if separate else profile
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.set_viewport_size(viewport)
    page.emulate_media(reduced_motion=reduced_motion)
    try:
        yield page
    finally:
        (context if separate else page).close()


@contextmanager
def opened(browser, address, query="?__theme=light", **options):
    """The app in a browser; fails on console errors and on requests to other hosts."""
    requests, errors, loads = [], [], []
    with visiting(browser, **options) as page:
        page.on("domcontentloaded", lambda _: loads.append(len(requests)))
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: line.type == "error" and errors.append(line.text))
        # Requests that are pending when the page is left fail, and Gradio logs that.
        page.on("framenavigated", lambda frame: frame.parent_frame or errors.clear())
        page.goto(address + query)
        try:
            yield page
        except Exception as error:
            # Tells a page that loaded itself again from one that waits.
            last = "\n".join(requests[-20:])
            error.add_note(f"The page was loaded after {loads} requests; the last ones:\n{last}")
            raise
        local = (address, "data:", "blob:")
        assert [url for url in requests if not url.startswith(local)] == []
        assert errors == []


def stored(page, name):
    """A property of the store that all views of the page share."""
    link = "link[rel=modulepreload][href$='compare/web/store.js']"
    script = """async ([link, name]) =>
        (await import(document.querySelector(link).href)).store[name]"""
    return page.evaluate(script, [link, name])


def column(page, index):
    return page.locator("#live .column").nth(index)


def text_of(page, index):
    """The text of a column."""
    tokens = column(page, index).locator(".token")
    return "".join(tokens.evaluate_all("tokens => tokens.map(token => token.textContent)"))


def figures(page, index):
    """The metrics of a column by name, hidden ones too."""
    pairs = (
        column(page, index)
        .locator(".figures > div")
        .evaluate_all(
            """all => all.map((pair) => [
            (pair.querySelector('dt button') ?? pair.querySelector('dt')).textContent,
            pair.querySelector('dd').textContent,
        ])"""
        )
    )
    return dict(pairs)


def states(page):
    return page.locator("#live .column").evaluate_all(
        "columns => columns.map(c => c.dataset.state)"
    )


_OVER = "document.querySelector('#live [data-over]')?.dataset.over ?? null"


@contextmanager
def running(page):
    """Press Run; wait for the end of the run at the end of the block."""
    with over(page):
        page.click("#run")
        yield


def refused(page, words):
    """Press Run, and wait for a message with this text instead of a run."""
    page.click("#run")
    page.wait_for_selector(f"#live .status.error >> text={words}")


@contextmanager
def over(page):
    """Wait at the end of the block for the end of the run that was started in it."""
    before = page.evaluate(_OVER)
    yield
    page.wait_for_function(f"before => ({_OVER}) !== before", arg=before, timeout=120_000)
    page.wait_for_selector("#run:not([disabled])")


_CARDS = "link[rel=modulepreload][href$='compare/web/cards.js']"


def ready(page):
    """Wait until Run is enabled and the strategies of the model are known."""
    page.wait_for_selector("#run:not([disabled])", state="attached", timeout=120_000)
    # Gradio may load the page once more if it lost the first session, so this waits for either.
    page.wait_for_function(
        """async (link) => {
            const found = document.querySelector(link);
            return found !== null && document.querySelector('#catalog') !== null
                && (await import(found.href)).cards.catalog !== null;
        }""",
        arg=_CARDS,
    )


def cards(page, name="list"):
    """The strategies of the comparison, as the browser keeps them, or another property of them."""
    script = """async ([link, name]) =>
        (await import(document.querySelector(link).href)).cards[name]"""
    return page.evaluate(script, [_CARDS, name])


@contextmanager
def editing(page, index):
    """Open the settings of a column; yields the start of the ids of its fields."""
    key = cards(page)[index]["key"]
    page.click(f"#card-{key}-open")
    page.wait_for_selector(f"#card-{key}-editor")
    yield f"#card-{key}"
    page.keyboard.press("Escape")
    page.wait_for_selector(f"#card-{key}-editor", state="detached")


def set_card(page, index, **values):
    """Change settings of a column."""
    with editing(page, index) as card:
        for name, value in values.items():
            if not page.locator(f"{card}-{name}").is_visible():
                page.click(f"{card}-editor summary")
            page.fill(f"{card}-{name}", str(value))


def set_strategy(page, index, strategy):
    """Change the strategy of a column."""
    with editing(page, index) as card:
        page.select_option(f"{card}-strategy", strategy)


def override(page, index, name, value):
    """Override a shared setting for one column."""
    with editing(page, index) as card:
        page.select_option(f"{card}-override", name)
        page.fill(f"{card}-{name}", str(value))


def fill_preset(page, title):
    """Choose an example, which runs at once, and stop it."""
    page.get_by_role("button", name=title).click()
    page.wait_for_selector("#presets .point")
    page.wait_for_selector("#stop:not([disabled])")
    with over(page):
        page.click("#stop")


def remove_card(page, index):
    """Remove a column's strategy."""
    key = cards(page)[index]["key"]
    page.click(f"#card-{key}-open")
    page.click(f"#card-{key}-remove")


def length(page, tokens):
    """Set max_new_tokens."""
    page.fill("#shared-max_new_tokens input[type=number]", str(tokens))
    page.keyboard.press("Tab")


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def on_tab(page, name):
    """Wait until a tab is open."""
    wait(lambda: name in page.get_by_role("tab", selected=True).all_inner_texts())


def box_of(locator):
    """The place of an element in the window; Playwright gives none while it is drawn again."""
    boxes = []
    wait(lambda: boxes.append(locator.bounding_box()) or boxes[-1] is not None)
    return boxes[-1]


def address_of(page):
    """The address that the browser shows; `page.url` is not updated while Python waits."""
    return page.evaluate("location.href")


def shared_link(page, button="#share .copy"):
    """Press Share; returns the link."""
    page.click(button)
    page.wait_for_function("document.querySelector('#share-link').value.includes('#s=')")
    return page.input_value("#share-link")


def downloaded(page, button, folder):
    """Press a button that saves a file; returns its path."""
    with page.expect_download() as download:
        page.click(button)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def expect_message(page, words):
    """Wait for a message with this text, then close all messages."""
    page.wait_for_selector(f".toast-body >> text={words}")
    page.evaluate("document.querySelectorAll('.toast-close').forEach(button => button.click())")
    page.wait_for_selector(".toast-body", state="detached")


def forked(page, index, at, words):
    """Fork a column at a token with this text; waits for the end."""
    with over(page):
        column(page, index).locator(".token").nth(at).click()
        page.fill("#live-typing", words)
        page.keyboard.press("Enter")
