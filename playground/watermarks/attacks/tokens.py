"""Attacks on the tokens of a text: some go, come, move or change, or human ones stand beside them.

Knows lists of token ids. Tokens that are new to a text are drawn from the human-written passages,
so they are as frequent as in people's writing and know nothing of green lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from random import Random

from engine.trace.token_text import Speller
from playground.watermarks.attacks.registry import Target, attack
from playground.watermarks.human_texts import passages


@attack("delete", "Delete tokens", strength="the chance of each token to be deleted")
def delete(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Drops tokens here and there, so that what follows a gap lost the context it was marked in."""
    return [id for id in target.ids if random.random() >= strength]


@attack("insert", "Insert tokens", strength="the chance of a new token after each token")
def insert(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Puts tokens from human-written texts in between: unmarked themselves, they also part a
    marked token from its context."""
    drawn = _drawn(target, random)
    changed = []
    for id in target.ids:
        changed.append(id)
        if random.random() < strength:
            changed.append(next(drawn))
    return changed


@attack("swap", "Swap neighbours", strength="the share of tokens that change places")
def swap(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Lets neighbouring tokens change places: every word is still there, in a wrong order."""
    ids, place = list(target.ids), 0
    # Pairs do not overlap, so of the places looked at strength / (2 - strength) begin one.
    chance = strength / (2 - strength)
    while place < len(ids) - 1:
        if random.random() < chance:
            ids[place], ids[place + 1] = ids[place + 1], ids[place]
            place += 1
        place += 1
    return ids


@attack("substitute", "Substitute tokens", strength="the chance of each token to be replaced")
def substitute(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Replaces tokens by others from human-written texts, whether they make sense there or not."""
    drawn = _drawn(target, random)
    return [
        next(token for token in drawn if token != id) if random.random() < strength else id
        for id in target.ids
    ]


@attack("truncate", "Cut the end off", strength="the share of the text that is cut off")
def truncate(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Keeps only the beginning: every token left is as marked as before, but there are fewer."""
    return target.ids[: round(len(target.ids) * (1 - strength))]


@attack(
    "mix",
    "Hide it in human text",
    strength="the share of human-written tokens in the result",
    highest=0.95,
    usual=0.5,
)
def mix(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Puts human-written text before and after, which dilutes the score of the whole; a window
    that moves over the text still finds the marked part."""
    human = list(islice(_written(target, random), round(_added(target, strength))))
    before = random.randint(0, len(human))
    return [*human[:before], *target.ids, *human[before:]]


def _added(target: Target, share: float) -> float:
    """How many tokens to add so that they are this share of the result."""
    return len(target.ids) * share / (1 - share)


def _drawn(target: Target, random: Random) -> Iterator[int]:
    """Single tokens of human texts, without end, from a generator of their own: what else is drawn
    at random then does not depend on how many of them were needed."""
    human = list(chain.from_iterable(_human(target.lab.speller)))
    own = Random(random.getrandbits(64))
    while True:
        yield own.choice(human)


def _written(target: Target, random: Random) -> Iterator[int]:
    """Tokens of whole human texts, one text after the other."""
    human = _human(target.lab.speller)
    order = random.sample(range(len(human)), len(human))
    while True:
        for text in order:
            yield from human[text]


@lru_cache(maxsize=2)
def _human(speller: Speller) -> list[list[int]]:
    return [speller.ids(f" {passage.text}") for passage in passages()]
