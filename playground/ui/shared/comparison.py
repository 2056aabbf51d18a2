"""A visitor's comparison: its columns, the arguments of each run, and where forks branch off."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.trace import Token, Trace, Update
from playground.ui.shared.live_feed import Feed


class InheritedToken(NamedTuple):
    """A token before a fork's own: one written in another column, or one that was entered."""

    token: Token
    text: str
    column: int | None = None
    step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the live view reads it."""
        if self.column is not None:
            return {"column": self.column, "step": self.step}
        return {"tokenId": self.token.id, "token": self.token.text, "text": self.text}


@dataclass(frozen=True)
class RunRequest:
    """The arguments of a run: enough to repeat it or to continue it from another position."""

    prompt: str | Chat
    choice: tuple[str, Mapping[str, Any]]  # the strategy and its settings
    shared: Mapping[str, Any]  # settings of all runs
    heading: tuple[str, str]  # the strategy and its settings, as shown above the column
    card: Mapping[str, Any] | None = None  # the card that asked for it, as the browser sent it


@dataclass(frozen=True)
class Column:
    """One run. ``prefix`` holds the tokens between the prompt and a fork's own tokens."""

    key: int
    request: RunRequest
    prefix: tuple[InheritedToken, ...] = ()
    origin: int | None = None  # the column it was forked from
    trace: Trace | None = None  # None while it runs

    @property
    def title(self) -> str:
        """Its number and its strategy."""
        return f"{self.key + 1}. {self.request.heading[0]}"

    @property
    def label(self) -> str:
        """The same, inside a sentence."""
        return f"column {self.key + 1}, {self.request.heading[0]}"

    @property
    def prefix_ids(self) -> list[int]:
        """The token ids of the prefix."""
        return [inherited.token.id for inherited in self.prefix]

    def tokens(self, lead: int | None) -> list[InheritedToken]:
        """The tokens of the path to step ``lead``, and where each comes from."""
        if self.trace is None:
            raise PlaygroundError("this column is still running; stop it first")
        if lead is not None and not 0 <= lead < len(self.trace.steps):
            raise PlaygroundError(f"this column has no step {lead}")
        own = (
            InheritedToken(step.token, step.text, self.key, step.id)
            for step in self.trace.path(lead)
        )
        return [*self.prefix, *own]


@dataclass
class Comparison:
    """The columns in the order they were started, and the feed that sends them to the page."""

    model: str
    feed: Feed = field(default_factory=Feed)
    columns: list[Column] = field(default_factory=list)
    position: int | None = None  # the pinned position in the texts
    tab: str = ""  # the open tab below the columns
    # Held while figures are drawn, so that the last drawing has the latest position and tab.
    drawing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(
        self,
        request: RunRequest,
        prefix: Sequence[InheritedToken] = (),
        origin: int | None = None,
    ) -> Column:
        """Add a column."""
        column = Column(len(self.columns), request, tuple(prefix), origin)
        self.columns.append(column)
        name, settings = request.heading
        self.feed.add_column(
            column.key,
            {
                "name": name,
                "strategy": request.choice[0],
                "settings": settings,
                "origin": origin,
                "card": None if origin is not None else request.card,
                "prompt": prompt_text(request.prompt),
                "chat": not isinstance(request.prompt, str),
                "before": [inherited.to_dict() for inherited in prefix],
            },
        )
        return column

    def add_updates(self, updates: Iterable[Update]) -> None:
        """Send updates to the page, and store the traces of runs that have ended."""
        updates = list(updates)
        for update in updates:
            if update.trace:
                column = self.columns[update.run]
                self.columns[update.run] = replace(column, trace=update.trace)
        self.feed.add_updates(updates)

    def add_trace(self, request: RunRequest, trace: Trace) -> None:
        """Add a column with a finished run."""
        prefix = [InheritedToken(token, token.text) for token in trace.prefix]
        column = self.add(request, prefix)
        best = trace.sequences[0].steps if trace.sequences else ()
        self.add_updates([Update(column.key, trace.steps, best[-1] if best else None, trace)])

    def column(self, key: Any) -> Column:
        """The column with this key, or a `PlaygroundError`."""
        if isinstance(key, int) and 0 <= key < len(self.columns):
            return self.columns[key]
        raise PlaygroundError(f"there is no column {key!r}")

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the columns that have ended, in order."""
        return tuple(column.trace for column in self.columns if column.trace)


def prompt_text(prompt: str | Chat) -> str:
    """A prompt as it was entered."""
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def strategy_title(strategy: str) -> str:
    """A strategy's id as people read it."""
    return strategy.replace("_", " ")
