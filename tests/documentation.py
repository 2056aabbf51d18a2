"""Reads headings and code blocks of README.md, CONTRIBUTING.md and docs/."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def pages() -> list[Path]:
    """Return the Markdown files: README, CONTRIBUTING, then docs/."""
    top = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")]
    return [path for path in top if path.is_file()] + sorted((REPOSITORY / "docs").rglob("*.md"))


def section(heading: str) -> str:
    """Return the text under a heading, in the first page that has it, up to the next heading."""
    pattern = rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#+ |\Z)"
    for page in pages():
        if found := re.search(pattern, _hide_comments(page.read_text("utf-8")), re.M | re.S):
            return found[2].replace(_HASH, "#")
    raise AssertionError(f"no page has the heading {heading!r}")


_HASH = "\N{WHITE SQUARE}"


def _hide_comments(text: str) -> str:
    """Replace # in code blocks, where it starts no heading."""
    return re.sub(r"```.*?```", lambda block: block[0].replace("#", _HASH), text, flags=re.S)


def code(heading: str) -> str:
    """Return the first Python block under a heading."""
    return section(heading).split("```python\n")[1].split("```")[0]


def code_file(heading: str) -> str:
    """Return the path that the text before that block says to save it as."""
    before = section(heading).split("```python\n")[0]
    found = re.search(r"`((?:strategies|visualizers)/[\w/]+\.py)`", before)
    assert found, f"the section {heading!r} must name the file to create"
    return found[1]
