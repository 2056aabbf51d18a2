"""The page on a lab that plays scripts, for behaviour that a real model cannot be made to show.

Run as `python scripted_page.py PORT GATE TURNS`; the lab is "loaded" once the file GATE
exists. The prompt is the name of the script. If the file TURNS exists, each turn of a script waits
until it has as many characters.
"""

import math
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from transformers import GenerationConfig, PreTrainedConfig

from engine.settings import Limits
from engine.trace import (
    Candidate,
    Distribution,
    Sequence,
    Step,
    Stop,
    Tick,
    Token,
    Trace,
    Update,
)
from engine.trie.backends import BackendStatus
from playground import generation_configs as configs
from playground.ui.page import build
from playground.ui.shared.model_loading import Labs
from strategies import find, registered

# Tokens: their texts or, where a token is a part of a character, its spelling and the text it adds.
HEBREW = [
    "של",
    "ום",
    " עו",
    ("<0xD7>", ""),
    ("<0x9C>", "ל"),
    "ם",
    ",",
    " abc",
    " 12",
    " שנ",
    "ים",
    ".",
]
ARABIC = ["مر", "حبا", " با", ("<0xD9>", ""), ("<0x84>", "ل"), "عا", "لم", "!"]
FACE = [("<0xF0><0x9F>", ""), ("<0x98>", ""), ("<0x80>", "\U0001f600")]
FAMILY = ["\U0001f469", "\u200d", "\U0001f469", "\u200d", "\U0001f467"]
EMOJI = [" hi", ("<0x20><0xF0><0x9F>", ""), ("<0x98><0x80>", " \U0001f600"), *FACE]
EMOJI += [" ", *FAMILY, " ", "\U0001f1e9", "\U0001f1ea", " \U0001f44d", "\U0001f3fd", "!"]
EVIL = '<img src=x onerror="window.evil = 1">${window.evil = 1}{{evil}}</script><script>evil'


def step(id, parent, text, probability=0.5, event="chosen"):
    token = Token(id, text)
    rival = Candidate(Token(1000, EVIL), 0.25, (0.0,), 0.0)
    chosen = Candidate(token, probability, (0.75,), 0.75)
    given = Distribution((chosen, rival), ("top_p",), 1.5, 0.5, 2)
    raw, final = math.log(probability), math.log(0.75)
    return Step(id, parent, id, token, text, event, raw, final, 1, given, {})


def unseen(id, parent, text):
    """A token whose distribution was not captured."""
    known = step(id, parent, text)
    return replace(known, raw=None, final=None, rank=None, distribution=None)


def drafted(id, parent, text, verdict):
    return replace(step(id, parent, text), notes={"verdict": verdict})


def trace(strategy, steps, paths, stop, scores=(None,), error=None):
    sequences = tuple(
        Sequence(
            tuple(steps[id].token.id for id in path),
            "".join(steps[id].text for id in path),
            tuple(path),
            stop,
            score,
        )
        for path, score in zip(paths, scores, strict=True)
    )
    ticks = (Tick(1, 1, 100.0),) * len(steps)
    return Trace(strategy, {}, 0, "toy", "p", (), tuple(steps), ticks, sequences, stop, error)


def toys(turn):
    """A chain with HTML in its text, beams that revise their text, and a run that fails."""
    evil = [step(0, None, " a"), step(1, 0, "\n"), step(2, 1, EVIL, 0.001)]
    beams = [step(0, None, " one"), step(1, None, " two"), step(2, 0, " more"), step(3, 1, " end")]
    failed = [step(0, None, " half")]
    yield Update(0, tuple(evil[:2]), 1)
    yield Update(1, tuple(beams[:2]), 0)
    yield Update(2, tuple(failed), 0)
    turn(1)
    yield Update(1, (beams[2],), 2)
    turn(2)
    error = Stop("error"), (None,), f"no more memory {EVIL}"
    yield Update(2, (), 0, trace("sample", failed, [(0,)], *error))
    yield Update(1, (beams[3],), 3)
    turn(3)
    yield Update(0, (evil[2],), 2, trace("greedy", evil, [(0, 1, 2)], Stop("end_token", EVIL)))
    best = trace("beam_search", beams, [(1, 3), (0, 2)], Stop("length"), (-0.1, -0.25))
    yield Update(1, (), 3, best)


def drafts():
    """A run that was captured in part, one with drafts, and one without steps."""
    foreign = [step(0, None, " seen"), unseen(1, 0, " taken"), step(2, 1, " seen")]
    verdicts = ("accepted", "rejected", "ignored", "resampled")
    ahead = [drafted(id, None, f" {verdict}", verdict) for id, verdict in enumerate(verdicts)]
    yield Update(0, tuple(foreign), 2, trace("custom", foreign, [(0, 1, 2)], Stop("recipe")))
    ended = trace("speculative", ahead, [(0,)], Stop("length"))
    ended = replace(ended, ticks=(Tick(1, 4, 100.0, draft_passes=3),))
    yield Update(1, tuple(ahead), 0, ended)
    yield Update(2, (), None, trace("greedy", [], [()], Stop("length")))


def empty(*runs):
    """Runs without a token."""
    for run in runs:
        yield Update(run, (), None, trace("greedy", [], [()], Stop("length")))


def chain(run, *pieces):
    """A run of one text whose tokens are given: texts, or pairs of a spelling and a text."""
    pairs = [(piece, piece) if isinstance(piece, str) else piece for piece in pieces]
    steps = [
        replace(step(id, id - 1 if id else None, text), token=Token(id, spelling))
        for id, (spelling, text) in enumerate(pairs)
    ]
    ended = trace("greedy", steps, [range(len(steps))], Stop("length"))
    return Update(run, tuple(steps), len(steps) - 1, ended)


def writing():
    """Right-to-left text, and characters that are split over several tokens."""
    yield chain(0, *HEBREW, "\n", *ARABIC)
    yield chain(1, *EMOJI)
    yield chain(2, " caf", "e", "\u0301", " स्", "ते", " 한", "국")


def equal():
    """A run that returns a text and then another one twice."""
    steps = [step(0, None, " one"), step(1, None, " two")]
    ended = trace("sample", steps, [(0,), (1,), (1,)], Stop("length"), (None,) * 3)
    yield Update(0, tuple(steps), 0, ended)
    yield from empty(1, 2)


def wide(turn, beams=16, length=40):
    """A beam search in which beams overtake each other; it waits before its last step."""
    given = step(0, None, " a").distribution
    steps, running = [], [None]
    for tick in range(length):
        if tick == length - 1:
            yield Update(1, tuple(steps), running[0])
            turn(1)
        begun = len(steps)
        for place in range(2 * beams):
            parent = running[(place * place) % len(running) if place else 0]
            event = "pruned" if place >= beams else "chosen"
            id = begun + place
            steps.append(replace(step(id, parent, f" w{id}", event=event), distribution=given))
        running = list(range(begun, begun + beams))
    path, at = [], running[0]
    while at is not None:
        path.insert(0, at)
        at = steps[at].parent
    ended = trace("beam_search", steps, [path], Stop("length"), (-0.1,))
    yield Update(1, tuple(steps[begun:]), running[0], ended)
    yield from empty(0, 2)


def forked():
    """A run of one token."""
    steps = [step(0, None, " anew")]
    return Update(0, tuple(steps), 0, trace("greedy", steps, [(0,)], Stop("length")))


def many():
    """Far more updates than a browser has frames."""
    steps = [step(0, None, "0 ")]
    yield Update(0, (steps[0],), 0)
    for id in range(1, 300):
        steps.append(step(id, id - 1, f"{id} "))
        yield Update(0, (steps[-1],), id)
        time.sleep(0.003)
    yield Update(0, (), 299, trace("greedy", steps, [range(300)], Stop("length")))
    for run in (1, 2):
        yield Update(run, (), None, trace("greedy", [], [()], Stop("length")))


def forever(stop):
    steps = []
    for id in count():
        if stop.is_set():
            print("stopped", flush=True)
            for run in (1, 2):
                yield Update(run, (), None, trace("greedy", [], [()], Stop("cancelled")))
            yield Update(0, (), id - 1, trace("greedy", steps, [range(id)], Stop("cancelled")))
            return
        time.sleep(0.05)
        steps.append(step(id, id - 1 if id else None, f"{id} "))
        yield Update(0, (steps[-1],), id)


class Lab:
    model = SimpleNamespace(
        name="toy",
        is_encoder_decoder=False,
        module=SimpleNamespace(generation_config=GenerationConfig(), config=PreTrainedConfig()),
    )

    backend_status = BackendStatus(
        "plain", "toy models have no cache", (), ("fused layers: not on <toy> models",)
    )

    def __init__(self, gate=Path("/dev/null"), turn=lambda number: None):
        self._gate, self._turn = gate, turn

    def offered(self):
        return registered()

    def defaults(self, strategy):
        return {name: known.default for name, known in find(strategy).own_settings.items()}

    def configuration(self, choice, **shared):
        id, settings = choice
        return configs.configured(GenerationConfig(), find(id), settings)

    def parse(self, prompt, choices, **shared):
        """Every request is valid."""

    def stream(self, prompt, runs, *, stop=None, **shared):
        if prompt == "broken":
            raise RuntimeError("a bug")
        if len(runs) == 1:  # a fork
            return iter([forked()])
        scripts = {
            "toys": lambda: toys(self._turn),
            "drafts": drafts,
            "many": many,
            "forever": lambda: forever(stop),
            "equal": equal,
            "writing": writing,
            "wide": lambda: wide(self._turn),
        }
        return scripts[prompt]()

    @property
    def token_decoder(self):
        return SimpleNamespace(
            token=lambda id: Token(id, f" #{id}"),
            add=lambda _, id: (f" #{id}", ()),
            ids=lambda text: [len(text)],
        )


def main():
    port, gate, turns = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])

    def load(_):
        while not gate.exists():
            time.sleep(0.05)
        return Lab(gate, turn)

    def turn(number):
        while turns.exists() and len(turns.read_text()) < number:
            time.sleep(0.05)

    page = build(Labs(["toy"], load), Limits())
    page.launch(server_port=port, run_history=False, quiet=True)


if __name__ == "__main__":
    main()
