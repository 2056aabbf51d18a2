"""Prompts for the training texts.

Three sources, all in the repository: requests that the model generates itself after an empty user
turn (Xu et al. 2024, "Magpie"), requests combined from the lists below, and passages of the
public-domain ``playground/watermarks/human_texts.txt``. One in ten subjects, code openings and
passages is held out for evaluation.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from playground.watermarks.human_texts import passages

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
HELD_OUT = 10  # one in this many is for evaluation

SUBJECTS = """
volcanoes|the moon|bees|the French Revolution|photosynthesis|bicycles|coffee|sleep|black holes|chess
the water cycle|bread|earthquakes|cats|electric cars|Shakespeare|the internet|gravity|rivers|jazz
healthy eating|the Roman Empire|vaccines|dolphins|mountain climbing|inflation|robots|libraries|tea
the Great Wall of China|evolution|painting|football|the human heart|clouds|recycling|trains|dreams
solar panels|ancient Egypt|penguins|meditation|algorithms|gardening|the Olympic Games|rainforests
public speaking|cheese|DNA|lighthouses|time management|elephants|the stock market|poetry|deserts
learning a language|the ocean|wolves|photography|democracy|atoms|running|the violin|bridges|owls
job interviews|dinosaurs|friendship|computers|winter|the solar system|honey|city parks|magnets|maps
soap|budgeting|whales|the printing press|hiking|glass|statistics|spiders|radio|volunteering|salt
""".replace("\n", "|")

REQUESTS = """
What is {0}?|Explain {0} to a child.|Write a short story about {0}.|Give me five facts about {0}.
Why does {0} matter?|Write a poem about {0}.|Tell me about the history of {0}.|How does {0} work?
Compare {0} and {1}.|Write an email to a colleague about {0}.|List the advantages of {0}.
What should a beginner know about {0}?|Describe {0} in three sentences.|Write a dialogue about {0}.
How can I learn more about {0}?|What is the difference between {0} and {1}?|Plan a lesson on {0}.
Write a blog post about {0}.|Give me a quiz about {0} with answers.|Summarize what is known of {0}.
Write the opening paragraph of an essay on {0}.|What would happen without {0}?|Is {0} overrated?
Write a Python function that has to do with {0}.|Write a speech in praise of {0}.
Make a table about {0} and {1}.|I am worried about {0}. What can I do?|Write a product text for {0}.
""".replace("\n", "|")

STYLES = """
|Keep it short.|Be detailed.|Use simple words.|Answer in bullet points.|Give an example.
Write for experts.|Use a friendly tone.|Answer in one paragraph.|Number your points.
""".replace("\n", "|").removeprefix("|")

TASKS = """
Summarize the following text:|Rewrite the following text in simple words:
Correct the grammar of this text and repeat it:|What are the main points of this text?
Who is speaking in this text, and to whom?|Give the following text a title:
Continue the following text:|Repeat the following text word for word:
Translate the following text into modern English:|List the names in this text:
""".replace("\n", "|")

CODE = (
    "def fibonacci(n):\n",
    "import os\nimport sys\n\ndef main():\n",
    "class Stack:\n    def __init__(self):\n",
    "def is_prime(number):\n    ",
    "#include <stdio.h>\n\nint main(void) {\n",
    "function add(a, b) {\n",
    "SELECT name, age FROM users WHERE ",
    "import numpy as np\n\ndef mean(values):\n",
    "<html>\n<head>\n<title>",
    "def read_file(path):\n    with open(path) as file:\n",
    "for i in range(10):\n    ",
    "public class Main {\n    public static void main(String[] args) {\n",
    "import pandas as pd\n\ndf = pd.read_csv(",
    "def quicksort(items):\n    if len(items) <= 1:\n",
    "class Animal:\n    def speak(self):\n",
    "def count_words(text):\n    counts = {}\n",
    "try:\n    value = int(input(",
    "const express = require('express');\n",
    "def binary_search(items, wanted):\n    low, high = 0,",
    "import random\n\ndef roll_dice(",
    "def celsius_to_fahrenheit(",
    "# A simple calculator\ndef add(x, y):\n    return",
    "import json\n\nwith open('data.json') as file:\n",
    "class Account:\n    def __init__(self, owner, balance=0):\n",
    "def reverse(text):\n    return",
    "while True:\n    command = input(",
    "const numbers = [1, 2, 3];\nnumbers.forEach(",
    "def test_addition():\n    assert",
    "#!/bin/bash\n\nfor file in *.txt; do\n",
    "CREATE TABLE customers (\n    id INTEGER PRIMARY KEY,\n",
    "import matplotlib.pyplot as plt\n\nx = [",
    "def factorial(n):\n    if n == 0:\n",
    "int sum(int *values, int count) {\n",
    "from flask import Flask\n\napp = Flask(__name__)\n",
    "numbers = [3, 1, 2]\nlargest = ",
    "def merge_sort(items):\n    middle = len(items) // 2\n",
    "body {\n    font-family: ",
    "fn main() {\n    let mut total = 0;\n",
    "def greet(name):\n    print(",
    "import datetime\n\ntoday = ",
)

OPENINGS = """
Once upon a time, there was|The old house at the end of the road|When I was a child,|In the year
It was a dark night, and|She opened the letter and|The most important thing about|Dear|Chapter 1
The scientists found that|My grandmother always said|On a cold morning in|The quick brown fox
There are many reasons why|According to|The city of|He had never seen|A long time ago, in|Today we
The little girl looked at|One day, a boy named|Deep in the forest lived|The captain of the ship
In the middle of the night|The dragon was not|After the storm,|My dog|The train stopped, and|Tom and
It all began when|The queen had a secret:|On the first day of school|Grandfather told us|Lily had a
The best way to learn|Last summer, my brother and I|The king called his three sons|Every day, the
""".replace("\n", "|")


class Prompt(NamedTuple):
    """Token ids, and whether the model first generates the user's request itself."""

    ids: list[int]
    generates_request: bool = False


class Prompts:
    """Draws random prompts, for training or for evaluation."""

    def __init__(self, tokenizer: Any, seed: int, *, held_out: bool) -> None:
        self._tokenizer = tokenizer
        self._random = Random(seed)
        self._held_out = held_out
        self._subjects = self._select(_split(SUBJECTS))
        self._passages = self._select([passage.text for passage in passages()])
        self._code = self._select(CODE)

    def draw(self) -> Prompt:
        """Return a random prompt."""
        kind = self._random.choices(
            (self._magpie, self._request, self._task, self._excerpt, self._opening),
            (34, 22, 12, 16, 16),
        )
        return kind[0]()

    def _select(self, items: Any) -> list[Any]:
        return [item for at, item in enumerate(items) if (at % HELD_OUT == 3) == self._held_out]

    def _magpie(self) -> Prompt:
        """A chat that ends where the user's message begins."""
        start = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
        return Prompt(self._ids(start), generates_request=True)

    def _request(self) -> Prompt:
        subjects = self._random.sample(self._subjects, 2)
        request = self._random.choice(_split(REQUESTS)).format(*subjects)
        return self._chat(f"{request} {self._random.choice(STYLES.split('|'))}".strip())

    def _task(self) -> Prompt:
        passage = self._random.choice(self._passages).split()
        at = self._random.randrange(max(1, len(passage) - 40))
        part = " ".join(passage[at : at + self._random.randrange(25, 110)])
        return self._chat(f"{self._random.choice(_split(TASKS))}\n\n{part}")

    def _excerpt(self) -> Prompt:
        """A few words of a passage, without a chat template."""
        passage = self._random.choice(self._passages).split()
        at = self._random.randrange(len(passage) - 30)
        return Prompt(self._ids(" ".join(passage[at : at + self._random.randrange(3, 30)])))

    def _opening(self) -> Prompt:
        if self._random.random() < 0.5:
            return Prompt(self._ids(self._random.choice(self._code)))
        subject = self._random.choice(self._subjects)
        opening = self._random.choice(_split(OPENINGS))
        return Prompt(self._ids(self._random.choice((opening, f"{opening} {subject}"))))

    def _chat(self, message: str) -> Prompt:
        messages = [{"role": "user", "content": message}]
        text = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return Prompt(self._ids(text))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)


def _split(joined: str) -> list[str]:
    return [item for item in joined.split("|") if item]
