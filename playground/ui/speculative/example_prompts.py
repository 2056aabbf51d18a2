"""Prompts worth a race: each shows where one way of drafting pays, or where none does.

Knows prompts and a few settings. Refuses to know how they are run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A prompt and the point it makes; ``temperature`` is given where tokens are drawn."""

    title: str
    point: str
    prompt: str
    chat: bool = False
    max_new_tokens: int = 48
    temperature: float | None = None


_LIGHTHOUSE = (
    "The lighthouse stands on a small rock near the harbour. Every evening the keeper climbs the "
    "tower and lights the lamp. In winter the waves reach the door, and the keeper waits inside "
    "until the storm is over."
)

EXAMPLES = (
    Example(
        "A story",
        "A tiny model that knows only children's stories drafts well here, though its vocabulary "
        "is another one.",
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "sunshine. One day, she saw",
    ),
    Example(
        "A summary that copies",
        "The answer repeats its prompt: looking words up there costs nothing, and whole sentences "
        "are kept at once.",
        f"Summarise in two sentences, in the words of the text: {_LIGHTHOUSE}",
        chat=True,
    ),
    Example(
        "An answer",
        "New words for every sentence: there is little to look up, and only a draft that knows "
        "this model well is of use.",
        "Why is the sky blue? Explain it to a child.",
        chat=True,
    ),
    Example(
        "Code with a pattern",
        "Names come back all the time: lookup finds them, a story model never saw any.",
        "def test_add():\n    assert add(1, 2) == 3\n\ndef test_subtract():\n"
        "    assert subtract(5, 2) == 3\n\ndef test_multiply():\n    assert multiply(2, 3) == 6\n"
        "\ndef test_divide():\n",
    ),
    Example(
        "The story, drawn hot",
        "The same beginning, but tokens are drawn at temperature 1.3: the model is less sure, "
        "drafts hit less often, and every lane writes a text of its own.",
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "sunshine. One day, she saw",
        temperature=1.3,
    ),
)
