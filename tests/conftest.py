"""Small hand-made traces, the embedded model, and the order of the test files."""

import gc
import math
from pathlib import Path

import pytest

from engine.trace import Candidate, Distribution, Sequence, Step, Stop, Tick, Token, Trace
from playground import Playground

EVIL = '<img src=x onerror="window.evil = 1">${1}'


# Two workers take one file after another; a long file started last would keep one of them waiting.
LONGEST = (
    "strategies/test_golden.py",
    "strategies/test_speculative_distribution.py",
    "strategies/test_medusa_distribution.py",
    "playground/ui/",
    "playground/export/",
    "test_extending.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    tests = Path(__file__).parent

    def position(item: pytest.Item) -> int:
        path = item.path.relative_to(tests).as_posix()
        found = (at for at, start in enumerate(LONGEST) if path.startswith(start))
        return next(found, len(LONGEST))

    items.sort(key=position)


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection: tests that call gc.collect() run faster."""
    gc.collect()
    gc.freeze()


def distribution(chosen: Token, probability: float) -> Distribution:
    """The chosen token, a probable rival, and a token with HTML that a processor removed."""
    rest = 1 - probability
    return Distribution(
        candidates=(
            Candidate(chosen, probability, (probability + rest / 4,), probability + rest / 4),
            Candidate(Token(90, " rival"), rest * 3 / 4, (rest * 3 / 4,), rest * 3 / 4),
            Candidate(Token(91, EVIL), rest / 4, (0.0,), 0.0),
        ),
        processors=("TopPLogitsWarper",),
        raw_entropy=1.5,
        final_entropy=0.5,
        kept=2,
    )


def step(id, parent, tick, text, event, probability, **notes) -> Step:
    token = Token(id, text)
    given = distribution(token, probability)
    final = math.log(given.candidates[0].final)
    return Step(id, parent, tick, token, text, event, math.log(probability), final, 1, given, notes)


def trace(strategy, settings, steps, sequences, **changes) -> Trace:
    return Trace(
        **{
            "strategy": strategy,
            "settings": {"max_new_tokens": 5, **settings},
            "seed": 0,
            "model": "toy",
            "prompt": "Say <b>hi</b> & go",
            "prompt_tokens": (Token(70, "Say"), Token(71, " <b>")),
            "steps": tuple(steps),
            "ticks": tuple(Tick(1, 2, 250.0) for _ in steps),
            "sequences": tuple(sequences),
            "stop": Stop("length", "max_new_tokens=5"),
            "error": None,
            **changes,
        }
    )


def returned(steps, path, score=None) -> Sequence:
    tokens = [steps[id] for id in path]
    text = "".join(item.text for item in tokens)
    ids = tuple(item.token.id for item in tokens)
    return Sequence(ids, text, tuple(path), Stop("length", "max_new_tokens=5"), score)


@pytest.fixture
def greedy_trace() -> Trace:
    """A chain with a space, a newline, an emoji and a token that contains HTML."""
    texts = [(" Hi", 0.8), ("\n", 0.4), ("🙂", 0.05), (EVIL, 0.005), (".", 0.95)]
    steps = [
        step(id, id - 1 if id else None, id, text, "chosen", probability)
        for id, (text, probability) in enumerate(texts)
    ]
    return trace("greedy", {}, steps, [returned(steps, range(5))])


@pytest.fixture
def beam_trace() -> Trace:
    """Two beams, three steps, and every event of a hypothesis.

    0 a ─┬─ 3 d ─┬─ 7 g   returned first
         │       └─ 9 i   pruned
         └─ 5 f           pruned
    1 b ─┬─ 4 e ─── 8 h   returned second
         └─ 6 .           finished
    2 c                   pruned
    """
    steps = [
        step(0, None, 0, " a", "chosen", 0.6, beam=0, order=0, total=-0.5, normalized=-0.5),
        step(1, None, 0, " b", "chosen", 0.32, beam=0, order=1, total=-1.2, normalized=-1.2),
        step(2, None, 0, " c", "pruned", 0.08, beam=0, order=2, total=-2.3, normalized=-2.3),
        step(3, 0, 1, " d", "chosen", 0.95, beam=0, order=0, total=-0.6, normalized=-0.3),
        step(4, 1, 1, " e", "chosen", 0.52, beam=1, order=1, total=-1.9, normalized=-0.95),
        step(5, 0, 1, " f", "pruned", 0.05, beam=0, order=2, total=-2.8, normalized=-1.4),
        step(6, 1, 1, ".", "finished", 0.2, beam=1, order=3, total=-2.8, normalized=-1.4),
        step(7, 3, 2, " g", "returned", 0.72, beam=0, order=0, total=-0.96, normalized=-0.32),
        step(8, 4, 2, " h", "returned", 0.4, beam=1, order=1, total=-2.8, normalized=-0.93),
        step(9, 3, 2, " i", "pruned", 0.001, beam=0, order=2, total=-7.5, normalized=-2.5),
    ]
    best = [returned(steps, (0, 3, 7), -0.32), returned(steps, (1, 4, 8), -0.93)]
    return trace("beam_search", {"num_beams": 2}, steps, best)


@pytest.fixture
def failed_trace() -> Trace:
    """A run that failed before its first step."""
    return trace("dola", {}, [], [], stop=Stop("error"), error="dola needs <more> layers")


@pytest.fixture
def toy_traces(greedy_trace, beam_trace, failed_trace) -> list[Trace]:
    return [greedy_trace, beam_trace, failed_trace]


@pytest.fixture(scope="session")
def embedded() -> Playground:
    """A playground with the embedded model."""
    return Playground()
