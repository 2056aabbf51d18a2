"""The command ``detect``: options, any bytes on standard input, exit statuses."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import BayesianDetectorConfig, BayesianDetectorModel

from engine.models import loading as models
from engine.watermark.detector import detect, scan
from playground.cli.main import main
from tests import processes

REPOSITORY = Path(__file__).parents[3]
PLAIN = "We hold these truths to be self-evident, that all men are created equal, that they are "
MARKS = {
    "lefthash": {"bias": 4.0, "hashing_key": 7},
    "synthid": {"ngram_len": 4, "keys": [5, 6, 7, 8, 9, 10, 11, 12]},
}


@pytest.fixture(autouse=True)
def loaded(embedded, monkeypatch):
    """Use the loaded model."""
    monkeypatch.setattr(models, "load", lambda name: embedded.model)


@pytest.fixture(scope="module")
def texts(embedded):
    runs = [("sample", {"watermarking_config": mark}) for mark in MARKS.values()]
    traces = embedded.compare("My day:", runs, max_new_tokens=80, min_new_tokens=80, seed=1)
    return dict(zip(MARKS, (trace.text for trace in traces), strict=True))


@pytest.fixture
def detect_command(monkeypatch, capsys):
    """Runs the command on a text; returns the status, the JSON and the messages."""

    def run(text, *options):
        given = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = main(["detect", *options])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else None, printed.err

    return run


def settings(scheme):
    known = {name: value for name, value in MARKS[scheme].items() if name != "bias"}
    return [word for name, value in known.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.parametrize("scheme", MARKS)
def test_detect_prints_what_the_python_api_returns(detect_command, embedded, texts, scheme):
    status, found, _ = detect_command(texts[scheme], "--scheme", scheme, *settings(scheme))
    fields = {name: value for name, value in MARKS[scheme].items() if name != "bias"}
    expected = detect(embedded.model, texts[scheme], scheme=scheme, **fields)
    assert status == 0 and found == expected.to_dict(tokens=False)
    assert found["verdict"] == "marked" and "tokens" not in found


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (PLAIN * 2, (), 1),
        (PLAIN * 2, ("--scheme", "selfhash", "--set", "context_width=3"), 1),
        (PLAIN * 2, ("--scheme", "synthid"), 1),
        ("", (), 3),
        ("hi", (), 3),
        ("one two three", (), 3),
        (PLAIN, ("--z-threshold", "60"), 3),
    ],
    ids=str,
)
def test_exit_status_is_the_verdict(detect_command, text, options, expected):
    status, found, _ = detect_command(text, *options)
    assert status == expected
    assert found["verdict"] == {1: "not marked", 3: "too short to say"}[expected]


def test_wrong_key_finds_no_watermark(detect_command, texts):
    assert detect_command(texts["lefthash"], "--set", "hashing_key=8")[0] == 1
    assert detect_command(texts["lefthash"], "--set", "hashing_key=7")[0] == 0


def test_every_option_has_an_effect(detect_command, embedded, texts, tmp_path):
    text = texts["lefthash"] + texts["lefthash"]
    options = [*settings("lefthash"), "--tokens", "--scan", "--ignore-repeated"]
    _, found, _ = detect_command(text, *options, "--z-threshold", "4")
    expected = detect(embedded.model, text, hashing_key=7, ignore_repeated=True, z_threshold=4)
    assert found["scan"] == scan(expected).to_dict() and found["scan"]["found"]
    assert "".join(token["text"] for token in found["tokens"]) == text
    assert found["tokens"][0]["why"] == "context" and found["tokens"][-1]["why"] == "repeated"
    assert found["without_repeats"]["z_score"] == found["z_score"]
    assert (found["z_threshold"], found["ignore_repeated"]) == (4.0, True)
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    assert (
        detect_command("nothing to see", *options, "--z-threshold", "4", "--file", str(file))[1]
        == found
    )


def test_bayesian_detector_from_a_folder(detect_command, texts, tmp_path, capsys):
    config = BayesianDetectorConfig(watermarking_depth=8)
    detector = BayesianDetectorModel(config)
    with torch.no_grad():
        detector.likelihood_model_watermarked.beta.fill_(1.0)
    detector.save_pretrained(tmp_path)
    capsys.readouterr()
    options = ["--scheme", "synthid", *settings("synthid"), "--bayesian", str(tmp_path)]
    status, found, _ = detect_command(texts["synthid"], *options)
    assert status == 0 and found["bayesian"]["probability"] > 0.9
    assert detect_command(PLAIN * 3, *options)[1]["bayesian"]["probability"] < 0.5
    status, _, errors = detect_command(PLAIN, "--bayesian", str(tmp_path))
    assert status == 2 and "--bayesian is for --scheme synthid" in errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scheme", "lefthsh"), "did you mean 'lefthash'?"),
        (("--set", "hashing_key=x"), "hashing_key is 'x'; it must be a whole number"),
        (("--set", f"hashing_key={10**20}"), "it must be a whole number"),
        (("--set", "greenlist_ratio=2"), "greenlist_ratio is 2; it must be"),
        (("--set", "text=x"), "unknown setting 'text' for a watermark"),
        (("--set", "limits=1"), "unknown setting 'limits' for a watermark"),
        (("--set", "hashing_key"), "a setting is written name=value"),
        (("--z-threshold", "nan"), "z_threshold is nan; it must be"),
        (("--file", "/no/such/file"), "cannot read /no/such/file"),
        (("--scheme", "synthid", "--bayesian", "/no/such/folder"), "there is no folder"),
    ],
    ids=str,
)
def test_invalid_input_is_one_line_and_status_two(detect_command, options, words):
    status, found, errors = detect_command(PLAIN, *options)
    assert status == 2 and found is None
    assert words in errors and errors.strip().count("\n") == 0


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash", "synthid"])
def test_bytes_that_are_not_text_are_accepted(detect_command, scheme):
    garbage = bytes(range(256)) * 2 + b"\xed\xa0\x80\xff\xfe"
    status, found, _ = detect_command(garbage, "--scheme", scheme, "--tokens")
    assert status in (1, 3) and found["verdict"] in ("not marked", "too short to say")


def test_text_over_the_limit_is_refused(detect_command):
    status, found, errors = detect_command("x" * 2_000_001)
    assert status == 2 and found is None
    assert "the text has 2000001 characters; at most 2000000 are read" in errors


def test_help_explains_each_exit_status(capsys):
    with pytest.raises(SystemExit) as done:
        main(["detect", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert done.value.code == 0
    assert "0 if the text is marked, 1 if it is not" in words
    assert "3 if the text is too short to decide" in words


def test_text_can_be_piped_in():
    text = b"\xff\x00 " + PLAIN.encode() * 2
    done = processes.run(["-m", "playground", "detect"], cwd=REPOSITORY, input=text)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"] == "not marked"
