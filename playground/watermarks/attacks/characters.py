"""Attacks on how a text is written: people read the same words, a tokenizer reads other tokens.

Knows characters only. Refuses to know tokens and models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from playground.watermarks.attacks.registry import Target, attack

# Cyrillic letters that most fonts draw like Latin ones.
LOOKALIKES = dict(zip("aceijopsxyABCEHIJKMOPSTX", "асеіјорѕхуАВСЕНІЈКМОРЅТХ", strict=True))
SPACES = ("  ", "\t", "\n", "\N{NO-BREAK SPACE}")


@attack("case", "Change case", strength="the chance of each word to change case")
def case(target: Target, strength: float, random: Random) -> str:
    """Writes words in capitals, and those that have nothing else in small letters."""

    def changed(word: str) -> str:
        return word.lower() if word.isupper() else word.upper()

    return _each(r"[^\W\d_]+", changed, target.text, strength, random)


@attack("whitespace", "Change white space", strength="the chance of each space to change")
def whitespace(target: Target, strength: float, random: Random) -> str:
    """Turns single spaces into double ones, tabs, line ends and no-break spaces."""
    own = Random(random.getrandbits(64))
    return _each(" ", lambda _: own.choice(SPACES), target.text, strength, random)


@attack("punctuation", "Drop punctuation", strength="the chance of each mark to be dropped")
def punctuation(target: Target, strength: float, random: Random) -> str:
    """Leaves out full stops, commas, quotation marks and their like."""
    return _each(r"[^\w\s]", lambda _: "", target.text, strength, random)


@attack(
    "lookalikes",
    "Unicode look-alikes",
    strength="the chance of each letter that has a double",
    usual=0.1,
)
def lookalikes(target: Target, strength: float, random: Random) -> str:
    """Replaces Latin letters by Cyrillic ones that look the same, which breaks words into tokens
    nobody chose."""
    letters = f"[{''.join(LOOKALIKES)}]"
    return _each(letters, LOOKALIKES.__getitem__, target.text, strength, random)


def _each(
    pattern: str, change: Callable[[str], str], text: str, strength: float, random: Random
) -> str:
    """Change every match with some chance. One number is drawn for each, so that what a weaker
    attack changes, a stronger one from the same seed changes as well."""
    return re.sub(
        pattern,
        lambda match: change(match[0]) if random.random() < strength else match[0],
        text,
    )
