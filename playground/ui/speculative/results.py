"""The result of a race as tables: speed, forward passes, and what became of each token."""

from __future__ import annotations

from typing import Any

from engine.errors import PlaygroundError
from playground.speculation import lossless
from playground.speculation.race import Lane, Race
from playground.ui.shared import html
from playground.ui.speculative.rounds import titled
from visualizers.speculative.race import speculative_race

EMPTY = (
    "After a race, this shows the speed of each lane, its forward passes, what became of each "
    "drafted token, and whether the text equals that of plain decoding."
)
_SPEED = [
    *("", "tokens/s", "speed-up", "time", "tokens", "target passes", "passes saved"),
    *("tokens per pass", "draft passes", "same text?"),
]
_ACCOUNTS = [
    *("", "drafted", "= accepted", "+ rejected", "+ discarded", "acceptance rate"),
    *("tokens", "= accepted", "+ resampled", "+ bonus", "+ without draft", "adds up"),
]
_EXPLANATION = (
    "Target passes are forward passes of the model itself, including the one over the prompt. A "
    "drafted token is discarded if one before it was rejected. If a whole draft is accepted, the "
    "model adds a bonus token; after a rejection it resamples that token. Of a tree's tokens for "
    "one position at most one can be accepted: they count as verified once."
)


def tables(race: Race) -> str:
    """Both tables, and whether the counts add up."""
    ran = [lane for lane in race.lanes if lane.trace and not lane.error]
    failed = [f"{lane.drafter.name}: {lane.error}" for lane in race.lanes if lane.error]
    parts = [
        html.title("Speed"),
        html.table("Speed", _SPEED, [_speed(race, lane) for lane in ran]),
        html.title("Tokens"),
        html.table("Tokens", _ACCOUNTS, [_accounts(lane) for lane in ran]),
        _check(ran),
        html.note(_EXPLANATION),
        *(html.check(False, text) for text in failed),
    ]
    return "".join(parts)


def figure(race: Race) -> Any:
    """The tokens of all lanes over time."""
    ran = [lane for lane in race.lanes if lane.trace and lane.arrivals]
    return speculative_race([titled(lane) for lane in ran])


def same_text(race: Race, lane: Lane) -> str:
    """Whether a lane's text equals that of plain decoding, in a few words."""
    plain = race.plain
    if lane.drafter.plain:
        return "–"
    if plain is None or plain.trace is None or lane.trace is None:
        return "no plain run"
    if _stopped(plain) or _stopped(lane):
        return "stopped"
    try:
        found = lossless.check(plain.trace, lane.trace)
    except PlaygroundError:
        return "sampled: see Losslessness"
    if found.same:
        return f"yes, all {len(found.pairs)} tokens"
    assert found.first is not None
    reason = "near tie" if found.near_tie else "no near tie"
    return f"no, from token {found.first.position + 1} ({reason})"


def _stopped(lane: Lane) -> bool:
    return lane.trace is not None and lane.trace.stop.rule == "cancelled"


def _speed(race: Race, lane: Lane) -> list[str]:
    accounting = lane.accounting
    assert accounting is not None
    return [
        lane.drafter.name,
        _number(lane.tokens_per_second, 1),
        _number(None if lane.drafter.plain else race.speed_up(lane), 2),
        f"{lane.seconds:.2f} s",
        str(accounting.tokens),
        str(accounting.target_passes),
        str(accounting.passes_saved),
        _number(accounting.compression, 2),
        str(accounting.draft_passes),
        same_text(race, lane),
    ]


def _accounts(lane: Lane) -> list[str]:
    accounting = lane.accounting
    assert accounting is not None
    drafted = [accounting.drafted, accounting.accepted, accounting.rejected, accounting.ignored]
    written = [
        accounting.tokens,
        accounting.accepted,
        accounting.resampled,
        accounting.bonus,
        accounting.plain,
    ]
    return [
        lane.drafter.name,
        *map(str, drafted),
        "–" if accounting.acceptance is None else f"{accounting.acceptance:.0%}",
        *map(str, written),
        "yes" if accounting.adds_up else "no",
    ]


def _check(ran: list[Lane]) -> str:
    faults = [
        f"{lane.drafter.name}: {fault}"
        for lane in ran
        if lane.accounting
        for fault in lane.accounting.faults
    ]
    if faults:
        return html.check(False, "The counts do not add up. " + "; ".join(faults))
    return html.check(
        True,
        "The counts add up: each drafted token was accepted, rejected or discarded, and each token"
        " of a text was accepted, resampled, a bonus, or written without a draft.",
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
