"""Prompts for the benchmark of drafters; no drafter was trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Prompt = str | list[dict[str, str]]


def _chat(text: str) -> Prompt:
    return [{"role": "user", "content": text}]


_BRIDGE = (
    "The old stone bridge over the river Lenn was closed on Monday after an engineer found cracks "
    "in two of its five arches. The town had planned to repair it next year, but the council now "
    "wants to begin in March. Until then buses take the road through the valley, which adds twenty "
    "minutes to the way to school. Shopkeepers on the east bank fear for their trade and have "
    "asked for a ferry. The mayor promised an answer by the end of the week."
)
_BEES = (
    "Honey bees keep the middle of their nest at about 35 degrees, winter and summer. When it is "
    "cold, thousands of them crowd together and shiver with their flight muscles; those at the "
    "edge are relieved by others from inside. When it is hot, some carry drops of water to the "
    "combs and others fan with their wings until it evaporates. A colony that is too small cannot "
    "do either, which is why beekeepers join weak colonies before the first frost."
)
_RECIPE = (
    "Wash four large potatoes and cut them into thin slices. Heat two spoons of oil in a wide pan, "
    "put the slices in and turn them after ten minutes. Chop one onion and add it. Beat six eggs "
    "with a little salt, pour them over the potatoes and wait until they are firm. Turn the whole "
    "omelette with the help of a plate, fry the other side for two minutes and serve it warm."
)

PROMPTS: Mapping[str, Sequence[Prompt]] = {
    "chat": [
        _chat("My neighbour plays the trumpet every evening. How can I talk to him about it?"),
        _chat("What is the difference between a lake and a pond?"),
        _chat("Give me three ideas for a rainy Sunday with two small children."),
        _chat("Why do cats purr?"),
    ],
    "summary": [
        _chat(f"Summarize this text in two or three sentences.\n\n{_BRIDGE}"),
        _chat(f"What are the main points of the following text?\n\n{_BEES}"),
        _chat(f"Summarize the following recipe briefly.\n\n{_RECIPE}"),
    ],
    "code": [
        "def is_palindrome(text):\n    ",
        "import csv\n\n\ndef read_rows(path):\n    ",
        _chat("Write a Python function that counts how often each word occurs in a text."),
    ],
    "story": [
        "The lighthouse keeper had not spoken to anyone for eleven days when",
        "Once upon a time there was a small fox who was afraid of the dark. Every night",
        "Dear grandmother,\n\nyou will not believe what happened on the train to",
    ],
}

COPIES: Sequence[Prompt] = [
    _chat(f"Repeat the following text word for word.\n\n{_BRIDGE}"),
    _chat(f"Copy this text exactly, and change nothing.\n\n{_RECIPE}"),
    "Original:\n"
    "total = 0\nfor price in prices:\n    total = total + price\nprint(total)\n"
    "average = total / len(prices)\nprint(average)\n\nThe same once more:\ntotal = 0\n"
    "for price in prices:\n",
]
