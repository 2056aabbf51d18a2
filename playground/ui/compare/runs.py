"""What happens between Run and the last token: updates in, screens out, a way to hold and to stop.

Knows the lab, boards and whose run is whose. Refuses to know layout and components. What goes wrong
is said on the status line, and in a message.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import PlaygroundError
from engine.run_control import RunControl
from engine.settings import Limits
from engine.trace import Trace, Update
from playground import Playground
from playground.ui.compare.results import Asked, Board, Column, Inherited
from playground.ui.shared.messages import warn
from playground.ui.shared.throttle import End, gathered

REFRESH = 0.03  # seconds between two pieces of news
# Seconds between two screens that Gradio carries: each costs its browser side some 30 ms, however
# little it says. In between the page asks for the news itself.
SCREEN = 1.0
_ASKED = 10.0  # seconds such a question may wait for its answer
PATIENCE = 600.0  # seconds a paused run waits for its visitor
_ENDING = 10.0  # seconds a run may take to end once it was told to

# The first updates of new columns, which it has put on the board; the pace holds and stops them.
Begin = Callable[[RunControl], Iterable[Update]]


@dataclass(frozen=True)
class _Going:
    """A run under way."""

    board: Board
    pace: RunControl
    arrived: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    over: threading.Event = field(default_factory=threading.Event)


class Runs:
    """What every visitor has on the page and has going on.

    Boards are kept for a while, also for a visitor who has gone: whoever comes back with the name
    of a board, which nobody can guess, gets it back.
    """

    def __init__(self, limits: Limits, patience: float = PATIENCE) -> None:
        self._limits = limits
        self._patience = patience
        self._going: dict[str, _Going] = {}  # by visitor
        self._writing: dict[str, _Going] = {}  # by the feed's id, until the last word is written
        self._boards: dict[str, Board] = {}  # by visitor
        self._kept: dict[str, Board] = {}  # by the feed's id; the oldest first

    def going(self, visitor: str) -> bool:
        """Whether the visitor has a run going on."""
        return visitor in self._going

    def board(self, visitor: str) -> Board | None:
        """What the visitor has on the page."""
        return self._boards.get(visitor)

    def stop(self, visitor: str) -> None:
        """End the visitor's runs within one tick; what was written stays."""
        if going := self._going.get(visitor):
            going.pace.stop()

    def pace(self, visitor: str, do: str) -> None:
        """Hold the visitor's runs, let them go on, or let them take one step."""
        going = self._going.get(visitor)
        if going is None or do not in ("pause", "play", "step"):
            return
        getattr(going.pace, do)()
        going.board.feed.pace("paused" if going.pace.paused else "playing")
        going.arrived.put(None)  # the page hears of it now, not with the next token

    def forget(self, visitor: str) -> None:
        """The visitor has left."""
        self.stop(visitor)
        self._boards.pop(visitor, None)

    def show(self, visitor: str, board: Board) -> str:
        """Put a board before the visitor; gives the live view's value."""
        self._hold(visitor, board)
        return board.feed.take(whole=True)

    def _hold(self, visitor: str, board: Board) -> None:
        self._boards[visitor] = board
        self._kept.pop(board.feed.id, None)
        self._kept[board.feed.id] = board
        for old in list(self._kept)[: -self._limits.boards]:
            del self._kept[old]

    def resume(self, visitor: str, feed: str) -> str | None:
        """What a visitor had on the page who comes back; None where it is no longer kept.

        A run that was left behind is ended first: nobody would see it go on.
        """
        board = self._kept.get(feed)
        if board is None or self.going(visitor):
            return None
        if going := self._writing.get(feed):
            going.pace.stop()
            going.over.wait(_ENDING)
        return self.show(visitor, board)

    async def more(self, wish: Any) -> str:
        """What a page has not read of a feed, as soon as there is some; empty where it is gone."""
        asked = wished(wish)
        feed, start = str(asked.get("feed")), asked.get("from")
        going = self._writing.get(feed)
        board = going.board if going else self._kept.get(feed)
        if board is None or type(start) is not int or start < 0:
            return ""
        return await board.feed.since(start, _ASKED if going else 0.0)

    def compare(
        self,
        lab: Playground,
        visitor: str,
        ask: Callable[[], Sequence[Asked]],
        *,
        stepping: bool = False,
    ) -> Iterator[str]:
        """Run what the visitor asks for; gives the live view's values, one screen after the other.

        Closing the iterator stops the runs. A visitor who has some going on gets no more.
        """
        board = Board(lab.model.name)

        def begin(pace: RunControl) -> Iterable[Update]:
            asked = ask()
            first = asked[0]
            runs = [each.choice for each in asked]
            news = lab.stream(first.prompt, runs, stop=pace, **first.shared)
            for each in asked:
                board.add(each)
            return news

        yield from self._write(visitor, board, begin, stepping=stepping)

    def fork(
        self,
        find: Callable[[str], Playground],
        visitor: str,
        leave: Callable[[Board, Playground], tuple[Column, Sequence[Inherited]]],
    ) -> Iterator[str]:
        """Go on from a place in one of the visitor's columns, on the model that wrote it, as one
        more column."""
        board = self._boards.get(visitor)
        if board is None:
            warn("These runs are no longer kept; run them again to fork them.")
            return

        def begin(pace: RunControl) -> Iterable[Update]:
            if len(board.columns) >= self._limits.columns:
                raise PlaygroundError(f"at most {self._limits.columns} columns stand side by side")
            lab = find(board.model)
            column, before = leave(board, lab)
            asked = column.asked
            ids = [inherited.token.id for inherited in before]
            news = lab.stream(asked.prompt, [asked.choice], stop=pace, prefix=ids, **asked.shared)
            key = board.add(asked, before, column.key).key
            return (replace(update, run=key) for update in news)

        yield from self._write(visitor, board, begin)

    def _write(
        self, visitor: str, board: Board, begin: Begin, *, stepping: bool = False
    ) -> Iterator[str]:
        going = _Going(board, RunControl(paused=stepping, patience=self._patience))
        if self._going.setdefault(visitor, going) is not going:
            return
        feed = board.feed
        self._writing[feed.id] = going
        screens: Iterator[list[Update]] = iter(())
        try:
            feed.say("Starting …")
            yield feed.take()
            news = begin(going.pace)
            self._hold(visitor, board)
            feed.pace("paused" if stepping else "playing")
            feed.say("Writing …")
            screens = batches(news, REFRESH, going.arrived)
            due = 0.0
            for updates in screens:
                board.hear(updates)
                # A page that is paused asks for nothing.
                if going.pace.paused or time.monotonic() >= due:
                    yield feed.take()
                    due = time.monotonic() + SCREEN
            feed.say(_verdict(board.traces, going.pace))
        except PlaygroundError as error:
            warn(str(error))
            feed.say(str(error), error=True)
        except GeneratorExit:
            self._free(visitor, going)
            # Whoever closes this must not wait for the end of a tick.
            threading.Thread(target=self._leave, args=(going, screens)).start()
            raise
        except Exception:
            traceback.print_exc()
            feed.say("The program failed; the server's log says where.", error=True)
        self._free(visitor, going)
        self._end(going)
        yield feed.take()

    def _leave(self, going: _Going, screens: Iterable[list[Update]]) -> None:
        """End a run that nobody looks at any more; who comes back finds what it had written."""
        try:
            for updates in screens:
                going.board.hear(updates)
            going.board.feed.say("Stopped: the page was left. What was written until then stays.")
        finally:
            self._end(going)

    def _free(self, visitor: str, going: _Going) -> None:
        """Stop a run and let its visitor begin another one."""
        going.pace.stop()
        if self._going.get(visitor) is going:  # not if another run has taken its place
            del self._going[visitor]

    def _end(self, going: _Going) -> None:
        """Write the last word about a run."""
        going.board.feed.pace("over")
        self._writing.pop(going.board.feed.id, None)
        going.over.set()


def _verdict(traces: Sequence[Trace], pace: RunControl) -> str:
    failed = sum(trace.error is not None for trace in traces)
    if pace.tired:
        waited = f"{pace.patience:,.0f} seconds"
        return f"Stopped: nobody went on for {waited}. What was written until then stays."
    if any(trace.stop.rule == "cancelled" for trace in traces):
        return "Stopped. What was written until then stays."
    seconds = max((trace.seconds for trace in traces), default=0.0)
    return f"Done in {seconds:.1f} s" + (f"; {failed} of {len(traces)} failed." if failed else ".")


def batches(
    source: Iterable[Update], seconds: float, arrived: queue.SimpleQueue[Any] | None = None
) -> Iterator[list[Update]]:
    """What has arrived, at most once in so many seconds; nothing waits for what comes after it.

    The source is read ahead in a thread of its own, which ends when the source does. Somebody else
    may put None into ``arrived`` to have a batch at once, be it an empty one.
    """
    arrived = arrived or queue.SimpleQueue()
    threading.Thread(target=_pump, args=(source, arrived), daemon=True).start()
    yield from gathered(arrived, seconds)


def _pump(source: Iterable[Update], arrived: queue.SimpleQueue[Any]) -> None:
    try:
        for item in source:
            arrived.put(item)
        arrived.put(End())
    except BaseException as error:
        arrived.put(End(error))


def wished(data: Any) -> Mapping[str, Any]:
    """What a script of the page sent along with an event; anybody may have sent it."""
    if not isinstance(data, Mapping):
        raise PlaygroundError("this is not what the page sends")
    return data
