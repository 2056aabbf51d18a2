"""How the page looks: Gradio's theme in our colours, the visitor's own fonts, our stylesheet.

Nothing here is fetched: a font from a web service would be a request that leaves the machine.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

CSS = Path(__file__).with_name("page.css")

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "Consolas", "DejaVu Sans Mono", "monospace")


def theme() -> gr.themes.Base:
    """The page's theme; light and dark follow the visitor's system."""
    look = gr.themes.Default(
        primary_hue="indigo",
        secondary_hue="indigo",
        neutral_hue="slate",
        font=_SANS,
        font_mono=_MONO,
    )
    # Gradio's own quiet text has 2.6:1 on white, too faint to read; this has 4.8:1.
    return look.set(
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
    )
