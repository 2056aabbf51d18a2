"""A visitor's columns: every run of a comparison, what it was asked, and what it was forked from.

Knows traces and where each column's text comes from. Refuses to run anything and to know the page.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from engine.errors import PlaygroundError
from engine.trace import Token, Trace, Update
from playground.ui.compare.live_feed import Feed

Prompt = str | list[dict[str, str]]


class Inherited(NamedTuple):
    """A token that stood before a fork's own: written by a step of another column, or given."""

    token: Token
    text: str
    column: int | None = None
    step: int | None = None

    def told(self) -> dict[str, Any]:
        """As the feed tells it."""
        if self.column is not None:
            return {"column": self.column, "step": self.step}
        return {"tokenId": self.token.id, "token": self.token.text, "text": self.text}


@dataclass(frozen=True)
class Asked:
    """What a run was asked: all that is needed to ask again from another place."""

    prompt: Prompt
    choice: tuple[str, Mapping[str, Any]]
    shared: Mapping[str, Any]
    heading: tuple[str, str]  # its name and its settings


@dataclass(frozen=True)
class Column:
    """One run. ``before`` is what stands between the prompt and its own tokens, in a fork."""

    key: int
    asked: Asked
    before: tuple[Inherited, ...] = ()
    origin: int | None = None  # the column it was forked from
    trace: Trace | None = None

    def written(self, lead: int | None) -> list[Inherited]:
        """The text up to a step, token by token, with where each comes from."""
        if self.trace is None:
            raise PlaygroundError("this column is still being written; stop it first")
        if lead is not None and not 0 <= lead < len(self.trace.steps):
            raise PlaygroundError(f"there is no step {lead} in this column")
        own = (
            Inherited(step.token, step.text, self.key, step.id) for step in self.trace.path(lead)
        )
        return [*self.before, *own]


@dataclass
class Board:
    """The columns in the order they came, and the feed that tells of them."""

    model: str
    feed: Feed = field(default_factory=Feed)
    columns: list[Column] = field(default_factory=list)
    at: int | None = None  # the place in the texts that is pointed out
    tab: str = ""  # the tab that is open below the columns
    # Held to draw: what is drawn last has heard of everything, however long drawing takes.
    drawing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(
        self,
        asked: Asked,
        before: Sequence[Inherited] = (),
        origin: int | None = None,
    ) -> Column:
        """One more column, told of in the feed."""
        column = Column(len(self.columns), asked, tuple(before), origin)
        self.columns.append(column)
        name, settings = asked.heading
        self.feed.column(
            column.key,
            {
                "name": name,
                "settings": settings,
                "origin": origin,
                "before": [inherited.told() for inherited in before],
            },
        )
        return column

    def hear(self, updates: Iterable[Update]) -> None:
        """Pass on what happened in some columns, and keep the traces that have ended."""
        updates = list(updates)
        for update in updates:
            if update.trace:
                column = self.columns[update.run]
                self.columns[update.run] = replace(column, trace=update.trace)
        self.feed.add(updates)

    def put(self, asked: Asked, trace: Trace) -> None:
        """One more column with a run that has ended long ago."""
        before = [Inherited(token, token.text) for token in trace.prefix]
        column = self.add(asked, before)
        lead = (
            trace.sequences[0].steps[-1] if trace.sequences and trace.sequences[0].steps else None
        )
        self.hear([Update(column.key, trace.steps, lead, trace)])

    def column(self, key: Any) -> Column:
        """The column with this key."""
        if isinstance(key, int) and 0 <= key < len(self.columns):
            return self.columns[key]
        raise PlaygroundError(f"there is no column {key!r} here")

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the columns that have ended, in their order."""
        return tuple(column.trace for column in self.columns if column.trace)
