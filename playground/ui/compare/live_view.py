"""The live view: columns of tokens, their candidates, forks, and the bar that walks through them.

The component's value is a screen of a feed. Knows which files make it. Refuses to know runs.

Token text is untrusted: it reaches the page as ``textContent`` alone, and the template is constant,
because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import gradio as gr

from playground.ui import assets

_STYLES = (
    "compare/web/live_view.css",
    "compare/web/columns.css",
    "compare/web/candidate_card.css",
    "compare/web/playback.css",
)
_EVENTS = ("begun", "over", "ended", "forked", "edited", "paced", "pinned")


def component(news: Callable[[Any], Awaitable[str]]) -> gr.HTML:
    """The live view: its value is what a feed's `take` gave; ``news`` is asked for what came since.

    ``begun`` fires when runs begin, ``over`` when all are over, and ``ended`` with it, for those
    who are drawn with the cards. ``forked``, ``edited``, ``paced`` and ``pinned`` say what the
    reader wishes: another token or words of their own, a changed text, a pause, a place.
    """

    async def more(wish: Any) -> str:  # Gradio wants a function with a name that it may mark
        return await news(wish)

    return gr.HTML(
        value="",
        server_functions=[more],
        html_template=assets.text("compare/web/live_view.html"),
        css_template=assets.text(*_STYLES),
        js_on_load=assets.mount("compare/web/live_view.js", *_EVENTS),
        apply_default_css=False,
        elem_id="live",
    )
