"""What runs in the browser: scripts, styles and templates, as the components hand them over.

Knows the folder. Refuses to know which component needs what.
"""

from __future__ import annotations

from pathlib import Path


def path(name: str) -> Path:
    """Where a file lies."""
    return Path(__file__).with_name(name)


def text(*names: str) -> str:
    """Files one after the other, as one text."""
    return "\n".join(path(name).read_text(encoding="utf-8") for name in names)
