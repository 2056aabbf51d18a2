"""Bundles ES modules into one script: a report is a single file and cannot import others."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+))", re.M)


def bundle(entry: Path) -> str:
    """An ES module and the modules it imports as one script, each in a function of its own.

    Understands named imports and exports of declarations, which is what the page's scripts use.
    """
    names: dict[Path, str] = {}
    parts: list[str] = []

    def add(path: Path) -> str:
        def imported(match: re.Match[str]) -> str:
            members = match[1].replace(" as ", ": ")
            return f"const {{{members}}} = {add((path.parent / match[2]).resolve())};\n"

        if path not in names:
            names[path] = ""  # a circular import would find no name
            source = path.read_text(encoding="utf-8")
            inside = _EXPORT.sub("", _IMPORT.sub(imported, source))
            if re.search(r"^(import|export) ", inside, re.M):
                raise ValueError(f"{path.name} uses an import or export that cannot be bundled")
            names[path] = f"module{len(parts)}"
            exports = ", ".join(_EXPORT.findall(source))
            parts.append(
                f"const {names[path]} = (() => {{\n{inside}\nreturn {{ {exports} }};\n}})();"
            )
        if not names[path]:
            raise ValueError(f"{path.name} is part of a circular import")
        return names[path]

    add(entry.resolve())
    body = "\n".join(parts)
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'
