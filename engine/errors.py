"""The one exception a person may read, and the hint that follows an unknown name.

Knows nothing of models, strategies or pages; it imports the standard library only. Anything that
is not a `PlaygroundError` is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PlaygroundError(Exception):
    """Says, in words for a person: what was given, what is allowed, what is near."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the known name nearest to `name`, or an empty string."""
    spelled = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""
