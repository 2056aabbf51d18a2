"""The Python program that repeats a run, in plain transformers wherever it writes the same tokens.

Knows what only the playground does, and says so in the program that needs it. Refuses to load or
run anything.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from transformers import GenerationConfig

from engine.prompt import Chat
from engine.settings import Limits
from playground.export.literals import WIDTH, Call, Imports, assigned
from playground.export.program import DRAFTING, NATIVE, Program, plain, recipe
from playground.lab import Playground
from playground.requests import Choice, Request, Text


def code(
    lab: Playground, prompt: str | Chat, choice: Choice, *, prefix: Text = (), **shared: Any
) -> str:
    """The program that repeats one run and prints its text.

    ``prefix`` and ``shared`` are as for `Playground.compare`.
    """
    begin = lab._parser.beginning(prompt, prefix)
    [request] = lab._parser.requests([choice], shared, begin)
    reason = _beyond(request)
    if reason is None:
        return Program(lab.model, request, begin.prefix).text(prompt)
    said = textwrap.wrap(f"{reason}; this is the playground itself.", WIDTH - 2)
    comment = "".join(f"# {line}\n" for line in said)
    return f"{comment}{python_api(lab, prompt, [choice], prefix=prefix, **shared)}"


def python_api(
    lab: Playground,
    prompt: str | Chat,
    choices: Sequence[Choice],
    *,
    prefix: Text = (),
    **shared: Any,
) -> str:
    """The program that repeats a whole comparison with the playground itself."""
    requests = lab._parser.requests(choices, shared, lab._parser.beginning(prompt, prefix))
    imports = Imports()
    imports.add("playground", "Playground")
    said: Any = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    runs = list(map(_run, choices, requests))
    settings = {name: value for name, value in shared.items() if value is not None}
    if prefix:
        settings["prefix"] = prefix
    compare = Call("lab.compare", (said, plain(runs, imports)), plain(settings, imports), long=True)
    lines = [
        assigned("lab", Call("Playground", (lab.model.name,), _limits(lab, imports))),
        assigned("traces", compare),
        *_print(requests),
    ]
    return str(imports) + "\n".join(lines) + "\n"


def _beyond(request: Request) -> str | None:
    """Why plain transformers would write other tokens, if it would."""
    id, settings = request.strategy.id, request.settings
    if id in DRAFTING:
        if settings.get("do_sample"):
            return "Where it drafts, transformers draws other tokens from the same distribution"
        if settings.get("stop_strings"):
            return "transformers looks for stop strings only where a round of drafting ends"
        if id == "speculative" and not settings.get("assistant_model"):
            return "transformers has no model draft for itself"
    elif id == "beam_sample" and settings["num_beams"] == 1:
        return "transformers draws one beam as if there were no beams"
    elif id not in NATIVE and recipe(request.strategy) is None:
        return f"transformers has nothing like {id}"
    return None


def _run(choice: Choice, request: Request) -> Any:
    """A choice as somebody would write it."""
    if isinstance(choice, GenerationConfig):
        return request.strategy.id, request.settings
    if isinstance(choice, str):
        return choice
    id, settings = choice
    given = {name: value for name, value in settings.items() if value is not None}
    return (id, given) if given else id


def _limits(lab: Playground, imports: Imports) -> dict[str, Any]:
    """The lab's limits where they allow more than is usual."""
    usual = vars(Limits())
    more = {name: limit for name, limit in vars(lab.limits).items() if limit > usual[name]}
    if not more:
        return {}
    imports.add("engine.settings", "Limits")
    return {"limits": Call("Limits", keywords=more)}


def _print(requests: Sequence[Request]) -> Iterator[str]:
    """Lines that print every text, each below its strategy's name where there are several."""
    yield "for trace in traces:"
    if len(requests) > 1:
        yield '    print(f"# {trace.strategy}")'
    if any(request.settings.get("num_return_sequences", 1) > 1 for request in requests):
        yield "    for sequence in trace.sequences:"
        yield "        print(sequence.text)"
    else:
        yield "    print(trace.text)"
