"""Python values as source code, laid out the way ruff and black would.

Knows literals, calls and line lengths. Refuses to know what the code is for, and to write an object
down that only its owner could make again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from engine.errors import PlaygroundError

WIDTH = 88  # of a line, where formatters are left to themselves
_STEP = 4
_PACKAGES = ("torch", "transformers")  # installed; what else is imported lies beside the program


class Code(str):
    """An expression that is code already."""

    __slots__ = ()


@dataclass(frozen=True)
class Call:
    """A call, written over several lines where one is too short, or where it is to be ``long``."""

    function: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    long: bool = False


def assigned(target: str, value: Any) -> str:
    """An assignment; a text too long for its line gets one of its own."""
    flat = _flat(value)
    fits = len(target) + 3 + len(flat) <= WIDTH
    if isinstance(value, str) and not fits and _STEP + len(flat) <= WIDTH:
        return f"{target} = (\n{' ' * _STEP}{flat}\n)"
    return f"{target} = {_laid(value, 0, len(target) + 3)}"


class Imports:
    """What a program imports, gathered while its lines are written."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def add(self, module: str, *names: str) -> None:
        """Import names from a module, or, without names, the module itself."""
        self._names.setdefault(module, set()).update(names)

    def function(self, function: FunctionType) -> Code:
        """Import a function by its name, where it has one that others can import."""
        module, name = function.__module__, function.__name__
        if module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
            raise PlaygroundError(
                f"{name} of {module} cannot be imported, so that no program could call it; "
                "define it at the top of a module"
            )
        self.add(module, name)
        return Code(name)

    def __str__(self) -> str:
        """The lines, packages first."""
        packages = sorted(self._names.keys() & set(_PACKAGES), key=self._order)
        blocks = [packages, sorted(self._names.keys() - set(packages))]
        return "".join("\n".join(map(self._line, block)) + "\n\n" for block in blocks if block)

    def _order(self, module: str) -> tuple[bool, str]:
        return bool(self._names[module]), module

    def _line(self, module: str) -> str:
        names = sorted(self._names[module], key=str.lower)
        if not names:
            return f"import {module}"
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= WIDTH:
            return line
        return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def _laid(value: Any, indent: int, taken: int) -> str:
    """The value at a depth, where so much of its line is taken before and behind it."""
    flat = _flat(value)
    long = isinstance(value, Call) and value.long
    inside = list(_inside(value, indent + _STEP))
    if not inside or (not long and indent + taken + len(flat) <= WIDTH):
        return flat
    opening, closing = _brackets(value)
    lines = [f"{' ' * (indent + _STEP)}{item},\n" for item in inside]
    return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"


def _inside(value: Any, indent: int) -> Iterator[str]:
    """What stands between the brackets, each ready for a line of its own."""
    if isinstance(value, list | tuple):
        yield from (_laid(item, indent, 1) for item in value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{_flat(key)}: {_laid(item, indent, len(_flat(key)) + 3)}"
    elif isinstance(value, Call):
        yield from (_laid(item, indent, 1) for item in value.arguments)
        for name, item in value.keywords.items():
            yield f"{name}={_laid(item, indent, len(name) + 2)}"


def _brackets(value: Any) -> tuple[str, str]:
    if isinstance(value, Call):
        return f"{value.function}(", ")"
    if isinstance(value, Mapping):
        return "{", "}"
    return ("[", "]") if isinstance(value, list) else ("(", ")")


def _flat(value: Any) -> str:
    """The value on one line."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool | int | float):
        return repr(value).replace("e+", "e")  # of an exponent
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(key)}: {_flat(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, Call):
        keywords = (f"{name}={_flat(item)}" for name, item in value.keywords.items())
        return f"{value.function}({', '.join([*map(_flat, value.arguments), *keywords])})"
    raise PlaygroundError(f"{value!r} is an object of your own: it cannot be written as code")


def _quoted(text: str) -> str:
    """A text in double quotes, or in single ones where those need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = (f"\\{quote}" if char == quote else repr(char)[1:-1] for char in text)
    return quote + "".join(escaped) + quote
