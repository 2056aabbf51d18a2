"""The page's theme, stylesheets and scripts.

Fonts are those of the visitor's system: the page sends no request to another host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import Route

from playground.ui import assets
from playground.ui.shared.addresses import PageAddresses
from playground.ui.shared.event_check import EventCheck
from playground.ui.shared.event_streams import EventStreams
from playground.ui.shared.heartbeat import NoHeartbeat
from playground.ui.shared.security_headers import SecurityHeaders

_STYLES = ("shared/web/page.css", "shared/web/accessibility.css")
_GRADIO_STYLE = "shared/web/gradio.css"  # last: it overrides Gradio's rules
_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "Consolas", "DejaVu Sans Mono", "monospace")
_RED, _DARK_RED = "#dc2626", "#b91c1c"


def theme_options(
    page: gr.Blocks, styles: Sequence[str], paths: Sequence[str], routes: Sequence[Route]
) -> dict[str, Any]:
    """The arguments of `launch` for theme, styles, scripts, addresses and routes; ``styles`` and
    ``paths`` are those of pages."""
    return {
        "theme": _theme(),
        "css_paths": [assets.path(name) for name in (*_STYLES, *styles, _GRADIO_STYLE)],
        "js": assets.listener("shared/web/fields.js", "improveFields"),
        "head": assets.preloads(),
        "app_kwargs": {
            "routes": [assets.route(), *routes],
            "middleware": [
                Middleware(SecurityHeaders),
                Middleware(NoHeartbeat),
                Middleware(EventCheck, page=page),
                Middleware(EventStreams),
                Middleware(PageAddresses, paths=paths),
            ],
        },
    }


def _theme() -> gr.themes.Base:
    """Light and dark follow the visitor's system."""
    default = gr.themes.Default(
        primary_hue="indigo",
        secondary_hue="indigo",
        neutral_hue="slate",
        font=_SANS,
        font_mono=_MONO,
    )
    # Gradio's subdued text has a contrast of 2.6:1 on white; this has 4.8:1.
    return default.set(
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
        # Gradio's accent and button colours have less than 4.5:1 with white.
        color_accent="*primary_600",
        link_text_color="*primary_600",
        link_text_color_dark="*primary_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_cancel_background_fill=_RED,
        button_cancel_background_fill_hover=_DARK_RED,
        button_cancel_background_fill_dark=_RED,
        button_cancel_background_fill_hover_dark=_DARK_RED,
    )
