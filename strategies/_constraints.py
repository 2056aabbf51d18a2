"""What must appear in a text, and how far a text has come with it.

Knows phrases as tokens. Refuses to know beams and scores. A text works on one constraint at a
time, and a token that does not fit sends it back to the start of it: the rules of transformers 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

Constraint = tuple[tuple[int, ...], ...]  # phrases, one of which must appear


@dataclass(frozen=True)
class Progress:
    """How far one text has come with all its constraints."""

    constraints: tuple[Constraint, ...]
    waiting: tuple[int, ...]  # the constraints not begun, in the order in which they are tried
    current: int | None = None  # the constraint that is begun
    written: tuple[int, ...] = ()  # and what there is of it

    @staticmethod
    def after(tokens: Iterable[int], constraints: tuple[Constraint, ...]) -> Progress:
        """What these tokens have of the constraints."""
        progress = Progress(constraints, tuple(range(len(constraints))))
        for token in tokens:
            progress = progress.read(token)
        return progress

    def read(self, token: int) -> Progress:
        """The progress once this token is written, too."""
        for which in self._tried:
            if token in self._next(which):
                waiting = tuple(other for other in self.waiting if other != which)
                further = replace(
                    self, waiting=waiting, current=which, written=(*self.written, token)
                )
                whole = not further._next(which)
                return replace(further, current=None, written=()) if whole else further
        return self.broken()

    def broken(self) -> Progress:
        """The constraint that is begun starts again, behind those that wait."""
        if self.current is None:
            return self
        return replace(self, waiting=(*self.waiting, self.current), current=None, written=())

    def wanted(self) -> list[int]:
        """The tokens that would take a constraint further."""
        return list(dict.fromkeys(token for which in self._tried for token in self._next(which)))

    @property
    def met(self) -> bool:
        """Whether every constraint is met."""
        return self.current is None and not self.waiting

    def counts(self) -> list[list[int]]:
        """For every constraint how many of its tokens there are, and of how many."""
        counts = []
        for which, phrases in enumerate(self.constraints):
            of = max(map(len, phrases))
            begun = len(self.written) if which == self.current else of
            counts.append([0 if which in self.waiting else begun, of])
        return counts

    @property
    def bank(self) -> int:
        """The tokens there are of constraints, all counted as if as long as the longest."""
        counts = self.counts()
        longest = max((of for _, of in counts), default=0)
        return sum(longest - of + done for done, of in counts if done)

    @property
    def _tried(self) -> tuple[int, ...]:
        return self.waiting if self.current is None else (self.current,)

    def _next(self, which: int) -> list[int]:
        """The tokens that go on from what is written with phrases of a constraint."""
        at = len(self.written)
        phrases = self.constraints[which]
        return [phrase[at] for phrase in phrases if phrase[:at] == self.written and phrase[at:]]
