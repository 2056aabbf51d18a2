"""Attacks on the characters of a text: a reader sees the same words, a tokenizer other tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from playground.watermarks.attacks.registry import Target, attack

# Cyrillic letters that most fonts draw like Latin ones.
LOOKALIKES = dict(zip("aceijopsxyABCEHIJKMOPSTX", "асеіјорѕхуАВСЕНІЈКМОРЅТХ", strict=True))
SPACES = ("  ", "\t", "\n", "\N{NO-BREAK SPACE}")


@attack("case", "Change case", strength="the probability that each word changes case")
def case(target: Target, strength: float, random: Random) -> str:
    """Writes words in capitals, and words that are in capitals in lower case."""

    def changed(word: str) -> str:
        return word.lower() if word.isupper() else word.upper()

    return _each(r"[^\W\d_]+", changed, target.text, strength, random)


@attack("whitespace", "Change white space", strength="the probability that each space changes")
def whitespace(target: Target, strength: float, random: Random) -> str:
    """Replaces spaces by double spaces, tabs, line breaks and no-break spaces."""
    own = Random(random.getrandbits(64))
    return _each(" ", lambda _: own.choice(SPACES), target.text, strength, random)


@attack("punctuation", "Remove punctuation", strength="the probability that each mark is removed")
def punctuation(target: Target, strength: float, random: Random) -> str:
    """Removes full stops, commas, quotation marks and other punctuation."""
    return _each(r"[^\w\s]", lambda _: "", target.text, strength, random)


@attack(
    "lookalikes",
    "Unicode look-alikes",
    strength="the probability that each letter with a look-alike is replaced",
    default=0.1,
)
def lookalikes(target: Target, strength: float, random: Random) -> str:
    """Replaces Latin letters by Cyrillic ones that look the same, which splits words into other
    tokens."""
    letters = f"[{''.join(LOOKALIKES)}]"
    return _each(letters, LOOKALIKES.__getitem__, target.text, strength, random)


def _each(
    pattern: str, change: Callable[[str], str], text: str, strength: float, random: Random
) -> str:
    """Change each match with a probability. One number is drawn per match, so that a stronger
    attack with the same seed changes all that a weaker one changes."""
    return re.sub(
        pattern,
        lambda match: change(match[0]) if random.random() < strength else match[0],
        text,
    )
