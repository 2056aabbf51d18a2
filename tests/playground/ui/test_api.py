"""The HTTP API and the MCP tools, called by Gradio's client and by an MCP client."""

import json
import re
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from engine.settings import Limits
from engine.trace import Trace
from engine.watermark import detector as watermark
from playground.metrics import run_metrics
from tests.playground.ui.browsing import ROOT, run_async, served, wait

FOX = "The quick brown fox"
RUNS = ["greedy", ["beam_search", {"num_beams": 3, "num_return_sequences": 2}]]
SHORT = {"max_new_tokens": 12, "seed": 1}
MARKED = {"greenlist_ratio": 0.4, "bias": 8.0, "hashing_key": 7}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The server's log."""
    return tmp_path_factory.mktemp("api") / "server.log"


@pytest.fixture(scope="module")
def address(log):
    with served([Path(__file__).with_name("api_server.py"), "{port}"], log) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    with closing(Client(address, verbose=False, analytics_enabled=False)) as client:
        yield client


def open_streams(log):
    lines = log.read_text().splitlines()
    return lines.count("stream: begun") - lines.count("stream: closed")


def refusal(client, *words, **settings):
    with pytest.raises(AppError) as refused:
        client.predict(*words, **settings)
    return str(refused.value)


def contents(trace):
    """A whole trace but for what the clock says, and its numbers apart: what else shared a forward
    pass moves their last digits."""
    numbers = []

    def number(digits):
        numbers.append(float(digits))

    timeless = json.dumps({**json.loads(trace.to_json()), "ticks": None})
    return json.loads(timeless, parse_float=number), numbers


def test_the_api_page_describes_all_endpoints_and_arguments(address):
    info = httpx.get(f"{address}gradio_api/info").json()
    assert list(info["named_endpoints"]) == ["/compare", "/stream", "/detect"]
    assert info["unnamed_endpoints"] == {}
    for endpoint in info["named_endpoints"].values():
        assert "smollm2" in endpoint["description"]
        for argument in endpoint["parameters"]:
            assert argument["python_type"]["description"], argument["parameter_name"]
    compare = info["named_endpoints"]["/compare"]
    assert "contrastive_search" in compare["description"]
    assert "custom" not in compare["description"]
    assert compare["returns"][0]["python_type"]["type"].startswith("list")
    needed = [one["parameter_name"] for one in compare["parameters"]]
    needed = needed[: [one["parameter_has_default"] for one in compare["parameters"]].index(True)]
    assert needed == ["prompt", "runs"]


def test_compare_gives_the_same_results_as_python(client, embedded):
    choices = [tuple(run) if isinstance(run, list) else run for run in RUNS]
    expected = embedded.compare(FOX, choices, **SHORT)
    short = client.predict(FOX, RUNS, SHORT, api_name="/compare")
    for found, trace in zip(short, expected, strict=True):
        best, *others = trace.sequences
        assert found["strategy"] == trace.strategy
        assert found["settings"] == trace.settings
        assert (found["text"], found["token_ids"]) == (trace.text, list(best.token_ids))
        assert found["score"] == (best.score and pytest.approx(best.score, rel=1e-4))
        assert found["stop"] == {"rule": "length", "detail": trace.stop.detail}
        assert [other["text"] for other in found["others"]] == [other.text for other in others]
        # Not the passes: whether the prompt had been read before is another story on each side.
        assert found["figures"]["tokens"] == len(best.token_ids)
        assert found["figures"]["perplexity"] == pytest.approx(
            run_metrics(trace).perplexity, rel=1e-4
        )
        assert found["error"] is None
    full = client.predict(FOX, RUNS, SHORT, full=True, api_name="/compare")
    for one, trace in zip(full, expected, strict=True):
        (found, numbers), (wanted, their) = (
            contents(Trace.from_json(json.dumps(one))),
            contents(trace),
        )
        assert found == wanted
        assert numbers == pytest.approx(their, rel=1e-3, abs=1e-4)


def test_chat_applies_the_chat_template(client, embedded):
    [expected] = embedded.compare(
        [{"role": "user", "content": "Say hi"}], ["greedy"], max_new_tokens=4
    )
    [found] = client.predict(
        "Say hi", ["greedy"], {"max_new_tokens": 4}, chat=True, api_name="/compare"
    )
    assert found["text"] == expected.text


def test_a_stream_shows_all_runs_and_ends_like_compare(client, embedded):
    screens = list(client.submit(FOX, RUNS, {"max_new_tokens": 40}, api_name="/stream"))
    assert len(screens) > 2
    assert all([one["run"] for one in screen] == [0, 1] for screen in screens)
    greedy = [screen[0]["text"] for screen in screens]
    assert all(after.startswith(before) for before, after in pairwise(greedy))
    assert not screens[0][0]["done"]
    choices = ["greedy", ("beam_search", RUNS[1][1])]
    ended = [
        {"run": run, "text": trace.text, "done": True, "error": None}
        for run, trace in enumerate(embedded.compare(FOX, choices, max_new_tokens=40))
    ]
    assert screens[-1] == ended


def test_cancelling_a_stream_stops_its_runs(client, log):
    job = client.submit(FOX, ["greedy"], {"max_new_tokens": 800}, api_name="/stream")
    next(iter(job))
    assert open_streams(log) == 1
    job.cancel()
    wait(lambda: open_streams(log) == 0, seconds=10)


def test_closing_the_connection_stops_the_runs(address, log):
    request = {"prompt": FOX, "runs": ["greedy"], "settings": {"max_new_tokens": 800}}
    ticket = httpx.post(f"{address}gradio_api/call/v2/stream", json=request).json()["event_id"]
    with httpx.stream("GET", f"{address}gradio_api/call/stream/{ticket}") as answer:
        assert "data" in "".join(line for line, _ in zip(answer.iter_lines(), "12", strict=False))
        assert open_streams(log) == 1
    wait(lambda: open_streams(log) == 0, seconds=20)


def test_detect_finds_the_watermark(client, embedded):
    settings = {"max_new_tokens": 60, "watermarking_config": MARKED}
    marked, plain = (
        client.predict(FOX, ["sample"], given, api_name="/compare")[0]["text"]
        for given in (settings, {"max_new_tokens": 60})
    )
    found = client.predict(marked, config=MARKED, api_name="/detect")
    assert found == watermark.detect(embedded.model, marked, **MARKED).to_dict()
    assert found["marked"]
    assert not client.predict(plain, config=MARKED, api_name="/detect")["marked"]
    assert not client.predict(marked, config=MARKED, z_threshold=99, api_name="/detect")["marked"]
    selfhash = client.predict(marked, "selfhash", api_name="/detect")
    assert selfhash["scheme"] == "selfhash"
    assert (
        client.predict(marked, config={"seeding_scheme": "selfhash"}, api_name="/detect")
        == selfhash
    )
    keys = [9, 8, 7]
    layered = client.predict(marked, "synthid", config={"keys": keys}, api_name="/detect")
    assert layered["settings"]["keys"] == keys and len(layered["layers"]["by_layer"]) == 3
    assert "".join(token["text"] for token in layered["tokens"]) == marked


@pytest.mark.parametrize(
    ("words", "more", "expected"),
    [
        ((FOX, ["gredy"]), {}, "did you mean 'greedy'?"),
        ((FOX, [["beam_search", {"num_beam": 2}]]), {}, "did you mean 'num_beams'?"),
        ((FOX, ["greedy"], {"stop": 1}), {}, "unknown setting 'stop' for greedy"),
        ((FOX, ["greedy"], {"prompt": 1}), {}, "unknown setting 'prompt' for greedy"),
        ((FOX, ["greedy"], {"max_new_tokens": 10**6}), {}, "max_new_tokens is 1000000; it must be"),
        ((FOX, ["greedy"], {"logits_processor": [1]}), {}, "takes a Python object"),
        ((FOX, ["greedy"], "seed=1"), {}, "settings is 'seed=1'; it must be an object"),
        ((FOX, "greedy"), {}, "runs is 'greedy'; it must be a list"),
        ((FOX, []), {}, "there is no strategy to run"),
        ((FOX, ["greedy"] * 7), {}, "7 strategies; at most 6"),
        ((FOX, [["greedy", 3]]), {}, '[strategy, settings], not ["greedy", 3]'),
        ((FOX, [[["greedy"], {}]]), {}, "a run must be a strategy"),
        ((FOX, [None]), {}, "a run must be a strategy"),
        (("", ["greedy"]), {}, "the prompt is empty"),
        ((5, ["greedy"]), {}, "prompt is 5; it must be a string"),
        ((FOX, ["greedy"]), {"chat": "no"}, "chat is 'no'; it must be true or false"),
        ((FOX, ["greedy"]), {"model": "gpt"}, "this server does not offer the model 'gpt'"),
        ((FOX, ["greedy"]), {"model": 3}, "model is 3; it must be a string"),
        ((FOX, ["greedy"]), {"model": "broken"}, "there is no <broken> model"),
    ],
)
@pytest.mark.parametrize("name", ["/compare", "/stream"])
def test_invalid_arguments_are_rejected_with_a_message(client, name, words, more, expected):
    assert expected in refusal(client, *words, **more, api_name=name)


@pytest.mark.parametrize(
    ("words", "more", "expected"),
    [
        (("fox",), {"config": {"context_width": 9}}, "is too short to say"),
        ((FOX, "lefthsh"), {}, "one of 'lefthash', 'selfhash'"),
        ((FOX, 3), {}, "one of 'lefthash', 'selfhash'"),
        ((FOX,), {"config": {"hash_key": 3}}, "did you mean 'hashing_key'?"),
        ((FOX,), {"config": {"hashing_key": "x"}}, "hashing_key is 'x'; it must be"),
        ((FOX,), {"config": {"hashing_key": 2**70}}, "it must be a whole number"),
        ((FOX,), {"config": {"context_width": 1.5}}, "context_width is 1.5; it must be"),
        ((FOX,), {"config": {"greenlist_ratio": 1}}, "greenlist_ratio is 1; it must be"),
        ((FOX,), {"config": {"text": "x"}}, "unknown setting 'text' for a watermark"),
        ((FOX,), {"config": [1]}, "config is [1]; it must be an object"),
        ((FOX,), {"z_threshold": "high"}, "z_threshold is 'high'; it must be a number"),
        ((FOX,), {"ignore_repeated": 1}, "ignore_repeated is 1; it must be true or false"),
        ((7,), {}, "text is 7; it must be a string"),
        (("fox " * Limits().prompt_characters,), {}, "characters; at most 20000 are allowed"),
    ],
)
def test_invalid_arguments_of_detect_are_rejected_with_a_message(client, words, more, expected):
    assert expected in refusal(client, *words, **more, api_name="/detect")


def test_an_empty_scheme_is_the_default(client):
    assert client.predict(FOX, None, api_name="/detect")["scheme"] == "lefthash"


def called(address, *calls):
    """The tools that an MCP client sees, and the results of calling them."""

    async def ask():
        async with (
            streamable_http_client(f"{address}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            listed = (await session.list_tools()).tools
            return listed, [await session.call_tool(name, given) for name, given in calls]

    return run_async(ask())


def test_mcp_describes_all_tools_and_arguments(address):
    tools, _ = called(address)
    assert [tool.name for tool in tools] == ["compare", "stream", "detect"]
    for tool in tools:
        assert "smollm2" in tool.description
        assert "request" not in tool.inputSchema["properties"]
        assert all(one["description"] for one in tool.inputSchema["properties"].values())
    assert [tool.inputSchema["required"] for tool in tools] == [
        ["prompt", "runs"],
        ["prompt", "runs"],
        ["text"],
    ]


def test_mcp_tools_return_json_and_report_errors(address, client):
    given = {"prompt": FOX, "runs": RUNS, "settings": SHORT}
    wrong = {"prompt": FOX, "runs": ["gredy"]}
    _, answers = called(
        address,
        ("compare", given),
        ("stream", given),
        ("detect", {"text": FOX}),
        ("compare", wrong),
    )
    *good, refused = answers
    compared, streamed, detected = (json.loads(answer.content[0].text) for answer in good)
    expected = client.predict(FOX, RUNS, SHORT, api_name="/compare")
    texts = [one["text"] for one in expected]
    assert [one["text"] for one in compared] == texts
    assert [(one["text"], one["done"]) for one in streamed] == [(text, True) for text in texts]
    assert detected == client.predict(FOX, api_name="/detect")
    assert refused.isError
    assert "did you mean 'greedy'?" in refused.content[0].text


def test_documented_examples_run_as_written(address, capsys):
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    page = page.replace("http://127.0.0.1:7860", address.rstrip("/"))
    exec(page.split("```python\n")[1].split("```")[0], {})
    printed = capsys.readouterr().out
    assert "greedy" in printed
    assert "length" in printed
    config = json.loads(page.split("```json\n")[1].split("```")[0])
    assert config["mcpServers"]["playground"]["url"] == f"{address}gradio_api/mcp/"


def test_the_server_connects_only_to_this_machine(address, client, log):
    called(address, ("detect", {"text": FOX}))
    hosts = set(re.findall(r"connects to (\S+)", log.read_text()))
    assert hosts, "MCP sends requests to the server itself"
    assert hosts <= {"127.0.0.1", "localhost", "::1", "0.0.0.0", "None"}
