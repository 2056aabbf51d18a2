"""Python source for values, calls, assignments and imports, laid out by `pprint`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pprint import pformat
from types import FunctionType
from typing import Any

import transformers

from engine.errors import PlaygroundError

WIDTH = 88
_PACKAGES = ("torch", "transformers")  # installed packages are imported before our own
_OURS = ("engine", "playground", "strategies")
# The first lines of a program: what it needs to run anywhere.
_NEEDS_PACKAGES = f"# Needs: pip install torch transformers=={transformers.__version__}"
_NEEDS_REPOSITORY = """\
# Needs the repository of the Decoding Playground: run `pip install -r requirements.txt`
# in its folder, then this program with that folder in PYTHONPATH, for example
#   PYTHONPATH=decoding-playground python program.py"""


class Code(str):
    """A Python expression. It is its own repr, so that it may stand inside other values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def literal(value: Any) -> str:
    """The value as an expression, on several lines if it is long."""
    return pformat(_plain(value), width=WIDTH, sort_dicts=False)


def assigned(target: str, value: Any) -> str:
    """The assignment of a value to a variable."""
    return _prefixed(f"{target} = ", value)


def call(
    function: str,
    arguments: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    long: bool = False,
) -> Code:
    """A call on one line, or, if ``long``, with one argument per line."""
    parts = [literal(argument) for argument in arguments]
    parts += [_prefixed(f"{name}=", value) for name, value in (keywords or {}).items()]
    if not long:
        return Code(f"{function}({', '.join(parts)})")
    lines = "".join(f"{textwrap.indent(part, '    ')},\n" for part in parts)
    return Code(f"{function}(\n{lines})")


class Imports:
    """The imports of a program, collected while its lines are written."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def add(self, module: str, *names: str) -> None:
        """Import names from a module, or, without names, the module itself."""
        self._names.setdefault(module, set()).update(names)

    def function(self, function: FunctionType) -> Code:
        """Import a function; raise if it cannot be imported by name."""
        module, name = function.__module__, function.__name__
        if module == "__main__" or getattr(sys.modules.get(module), name, None) is not function:
            raise PlaygroundError(
                f"{name} of {module} cannot be imported by a program; "
                "define it at the top of a module"
            )
        self.add(module, name)
        return Code(name)

    @property
    def needs(self) -> str:
        """A comment that says how to get the imported packages."""
        ours = any(module.partition(".")[0] in _OURS for module in self._names)
        return (_NEEDS_REPOSITORY if ours else _NEEDS_PACKAGES) + "\n\n"

    def __str__(self) -> str:
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


def _prefixed(prefix: str, value: Any) -> str:
    """The value after a prefix, its further lines aligned with the first."""
    if isinstance(value, Code):
        return f"{prefix}{value}"
    return prefix + textwrap.indent(literal(value), " " * len(prefix)).lstrip(" ")


def _plain(value: Any) -> Any:
    """The value in built-in types, whose repr is source code."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise PlaygroundError(f"{value!r} cannot be written as code")
