"""The app on a ZeroGPU Space: the page's runs and the API's are calls of `spaces.GPU`."""

from contextlib import closing

import pytest
from gradio_client import Client

from playground import Playground
from tests.playground.ui.browsing import ROOT, length, opened, ready, running, served, text_of

MODEL = "stories15m"
SHORT = {"max_new_tokens": 8, "seed": 1}
# Stands for the package `spaces`; its calls are logged.
SPACES = """
from tests.forking_gpu import ForkingGpu

class Logged(ForkingGpu):
    def __call__(self, *, duration):
        def logged(job):
            print("a call of", duration(job), "seconds", flush=True)
            return duration(job)
        return super().__call__(duration=logged)

GPU = Logged()
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("zero") / "log"


@pytest.fixture(scope="module")
def address(log):
    log.with_name("spaces.py").write_text(SPACES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACES_ZERO_GPU", "true")
        paths = f"{ROOT}:{log.parent}"
        flags = ["--model", MODEL, "--models", MODEL]
        with served(["app.py", "--port", "{port}", *flags], log, paths=paths) as address:
            yield address


def calls(log):
    return log.read_text().count("a call of")


def test_a_comparison_on_the_page_is_one_call(browser, address, log):
    before = calls(log)
    with opened(browser, address) as page:
        ready(page)
        length(page, 5)
        with running(page):
            pass
        shown = [text_of(page, column) for column in range(3)]
    assert all(shown)
    assert calls(log) == before + 1


def test_the_api_returns_the_tokens_of_a_plain_playground(address, log):
    before = calls(log)
    with closing(Client(address, verbose=False)) as client:
        settings = {"max_new_tokens": 8, "seed": 1}
        runs = ["greedy", ["sample", {"top_p": 0.9}]]
        answer = client.predict("Once upon a time", runs, settings, api_name="/compare")
    traces = Playground(MODEL).compare(
        "Once upon a time", ["greedy", ("sample", {"top_p": 0.9})], **settings
    )
    assert [run["text"] for run in answer] == [trace.text for trace in traces]
    assert calls(log) == before + 1
