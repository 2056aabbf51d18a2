"""Attacks on the tokens of a text: delete, insert, swap, replace, truncate, mix with human text.

New tokens are drawn from the human-written passages, so they have natural frequencies and do not
depend on the green lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from random import Random

from engine.trace.token_text import TokenDecoder
from playground.watermarks.attacks.registry import Target, attack
from playground.watermarks.human_texts import passages


@attack("delete", "Delete tokens", strength="the probability that each token is deleted")
def delete(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Deletes tokens, so that the tokens after a gap lose the context they were marked in."""
    return [id for id in target.ids if random.random() >= strength]


@attack("insert", "Insert tokens", strength="the probability of a new token after each token")
def insert(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Inserts tokens from human-written texts: they are unmarked, and they separate marked tokens
    from their context."""
    new = _random_tokens(target, random)
    changed = []
    for id in target.ids:
        changed.append(id)
        if random.random() < strength:
            changed.append(next(new))
    return changed


@attack("swap", "Swap neighbours", strength="the share of tokens that change places")
def swap(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Swaps neighbouring tokens: all words remain, in another order."""
    ids, place = list(target.ids), 0
    # Pairs do not overlap, so a share strength / (2 - strength) of the visited places starts one.
    chance = strength / (2 - strength)
    while place < len(ids) - 1:
        if random.random() < chance:
            ids[place], ids[place + 1] = ids[place + 1], ids[place]
            place += 1
        place += 1
    return ids


@attack("substitute", "Substitute tokens", strength="the probability that each token is replaced")
def substitute(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Replaces tokens by random ones from human-written texts."""
    new = _random_tokens(target, random)
    return [
        next(token for token in new if token != id) if random.random() < strength else id
        for id in target.ids
    ]


@attack("truncate", "Cut off the end", strength="the share of the text that is cut off")
def truncate(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Keeps only the first tokens: the mark per token is unchanged, but there are fewer tokens."""
    return target.ids[: round(len(target.ids) * (1 - strength))]


@attack(
    "mix",
    "Mix with human text",
    strength="the share of human-written tokens in the result",
    highest=0.95,
    default=0.5,
)
def mix(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Adds human-written text before and after, which dilutes the score of the whole; a sliding
    window still finds the marked part."""
    human = list(islice(_running_text(target, random), round(_added(target, strength))))
    before = random.randint(0, len(human))
    return [*human[:before], *target.ids, *human[before:]]


def _added(target: Target, share: float) -> float:
    """The number of tokens to add so that they are this share of the result."""
    return len(target.ids) * share / (1 - share)


def _random_tokens(target: Target, random: Random) -> Iterator[int]:
    """An endless stream of single tokens of human texts. It has its own random generator: other
    random numbers then do not depend on how many tokens were needed."""
    human = list(chain.from_iterable(_human(target.lab.token_decoder)))
    own = Random(random.getrandbits(64))
    while True:
        yield own.choice(human)


def _running_text(target: Target, random: Random) -> Iterator[int]:
    """The tokens of whole human texts, one text after the other."""
    human = _human(target.lab.token_decoder)
    order = random.sample(range(len(human)), len(human))
    while True:
        for text in order:
            yield from human[text]


@lru_cache(maxsize=2)
def _human(token_decoder: TokenDecoder) -> list[list[int]]:
    return [token_decoder.ids(f" {passage.text}") for passage in passages()]
