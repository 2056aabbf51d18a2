"""MkDocs hook: turns ``$$ … $$`` and ``$ … $`` into MathML, which browsers draw without scripts."""

import re
from typing import Any

from latex2mathml.converter import convert

# Code, fenced or inline, is matched first and left alone.
_PATTERN = re.compile(
    r"(?P<code>```.*?```|`[^`\n]+`)|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$", re.DOTALL
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the formulas of one page."""

    def replace(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        if found["block"]:
            return str(convert(found["block"].strip(), display="block"))
        return str(convert(found["inline"].strip()))

    return _PATTERN.sub(replace, markdown)
