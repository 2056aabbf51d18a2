"""Example prompts for a race, each better for one kind of drafter than for others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A prompt and what it shows; with a ``temperature``, tokens are sampled."""

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
        "A tiny model trained on children's stories drafts well here, although it has a different "
        "vocabulary.",
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "sunshine. One day, she saw",
    ),
    Example(
        "A summary",
        "The answer repeats its prompt: prompt lookup drafts at almost no cost, and whole "
        "sentences are accepted at once.",
        f"Summarise in two sentences, in the words of the text: {_LIGHTHOUSE}",
        chat=True,
    ),
    Example(
        "An answer",
        "The answer repeats little of its prompt, so prompt lookup rarely helps. A draft model "
        "trained for this model still does.",
        "Why is the sky blue? Explain it to a child.",
        chat=True,
    ),
    Example(
        "Code",
        "Names are repeated: prompt lookup finds them, a model trained on stories cannot.",
        "def test_add():\n    assert add(1, 2) == 3\n\ndef test_subtract():\n"
        "    assert subtract(5, 2) == 3\n\ndef test_multiply():\n    assert multiply(2, 3) == 6\n"
        "\ndef test_divide():\n",
    ),
    Example(
        "A story, sampled",
        "The same prompt, sampled at temperature 1.3: the model is less certain, fewer drafted "
        "tokens are accepted, and each lane writes a different text.",
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "sunshine. One day, she saw",
        temperature=1.3,
    ),
)
