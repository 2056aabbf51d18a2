"""A race's outcome in words and tables: how fast, how many passes, and where every token went.

Knows the record of a race. Refuses to reckon: ledgers, checks and times come ready.
"""

from __future__ import annotations

from typing import Any

from engine.errors import PlaygroundError
from playground.speculation import lossless
from playground.speculation.accounting import Accounting
from playground.speculation.race import Lane, Race
from playground.ui.shared import html as tables
from playground.ui.speculative import markup
from playground.ui.speculative.rounds import named
from visualizers.speculative.race import speculative_race

EMPTY = (
    "After a race: how fast each was, how many passes of the model it took, where every drafted "
    "token went, and whether the text is the one plain decoding writes."
)
_SPEED = [
    *("", "tokens/s", "times plain", "time", "tokens", "target passes", "passes saved"),
    *("tokens per pass", "draft passes", "the same text?"),
]
_LEDGER = [
    *("", "drafted", "= accepted", "+ rejected", "+ ignored", "accepted of judged"),
    *("tokens", "= accepted", "+ resampled", "+ bonus", "+ without a draft", "adds up"),
]
_SAID = (
    "Target passes are those of the model itself, the one over the prompt included. A token is "
    "ignored when one before it in its draft was rejected: nobody judged it. After a draft that "
    "is kept whole the model adds a bonus token, after a rejection it puts its own in the place. "
    "Of a tree's tokens for one place at most one can be kept: they count as judged once."
)


def shown(race: Race) -> str:
    """Both tables, and whether all sums agree."""
    ran = [lane for lane in race.lanes if lane.trace and not lane.error]
    failed = [f"{lane.drafter.name}: {lane.error}" for lane in race.lanes if lane.error]
    parts = [
        markup.title("How fast"),
        tables.table("How fast", _SPEED, [_speed(race, lane) for lane in ran]),
        markup.title("Where every token went"),
        tables.table("Where every token went", _LEDGER, [_ledger(lane) for lane in ran]),
        _check(ran),
        markup.said(_SAID),
        *(markup.check(False, words) for words in failed),
    ]
    return "".join(parts)


def clock(race: Race) -> Any:
    """The figure of all lanes on one clock."""
    ran = [lane for lane in race.lanes if lane.trace and lane.arrivals]
    return speculative_race([named(lane) for lane in ran])


def verdict(race: Race, lane: Lane) -> str:
    """Whether a lane's text is plain decoding's, in a few words."""
    plain = race.plain
    if lane.drafter.plain:
        return "–"
    if plain is None or plain.trace is None or lane.trace is None:
        return "plain did not run"
    if _cut(plain) or _cut(lane):
        return "stopped"
    try:
        found = lossless.check(plain.trace, lane.trace)
    except PlaygroundError:
        return "drawn: test the odds"
    if found.same:
        return f"yes, all {len(found.pairs)} tokens"
    first = found.first
    assert first is not None
    why = "near tie" if found.near_tie else "no near tie"
    return f"no, from token {first.position + 1} on ({why})"


def _cut(lane: Lane) -> bool:
    return lane.trace is not None and lane.trace.stop.rule == "cancelled"


def _speed(race: Race, lane: Lane) -> list[str]:
    told = lane.accounting
    assert told is not None
    times = None if lane.drafter.plain else race.speed_up(lane)
    return [
        lane.drafter.name,
        _number(lane.tokens_per_second, 1),
        _number(times, 2),
        f"{lane.seconds:.2f} s",
        str(told.tokens),
        str(told.target_passes),
        str(told.passes_saved),
        _number(told.compression, 2),
        str(told.draft_passes),
        verdict(race, lane),
    ]


def _ledger(lane: Lane) -> list[str]:
    told = lane.accounting
    assert told is not None
    counts = [told.drafted, told.accepted, told.rejected, told.ignored]
    written = [told.tokens, told.accepted, told.resampled, told.bonus, told.plain]
    share = "–" if told.acceptance is None else f"{told.acceptance:.0%}"
    return [
        lane.drafter.name,
        *map(str, counts),
        share,
        *map(str, written),
        "yes" if told.adds_up else "no",
    ]


def _check(ran: list[Lane]) -> str:
    faults = [
        f"{lane.drafter.name}: {fault}"
        for lane in ran
        if lane.accounting
        for fault in _faults(lane)
    ]
    if faults:
        return markup.check(False, "The ledger does not add up. " + "; ".join(faults))
    return markup.check(
        True,
        "The ledger adds up: every drafted token was accepted, rejected or ignored, and every token"
        " of a text was accepted, resampled, a bonus, or written without a draft.",
    )


def _faults(lane: Lane) -> tuple[str, ...]:
    told: Accounting | None = lane.accounting
    return told.faults if told else ()


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
