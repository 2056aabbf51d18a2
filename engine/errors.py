"""The exception for invalid input, and the suggestion for a misspelled name.

Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PlaygroundError(Exception):
    """Invalid input. The message is for users: what was given, what is allowed, what is similar."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the most similar known name, or an empty string."""
    spelled = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""
