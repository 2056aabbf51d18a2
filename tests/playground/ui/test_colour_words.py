"""Texts name what a colour shows, not the colour: tints differ between the light and dark theme."""

import re
from pathlib import Path

import pytest

from playground.ui.compare.presets import PRESETS

ROOT = Path(__file__).parents[3]
COLOURS = re.compile(
    r"\b(yellow|purple|violet|orange|brown|olive|vermillion|dark|darker|pale|brighter)\b", re.I
)
DOCUMENTS = [ROOT / "docs" / "getting-started.md", *sorted((ROOT / "docs" / "page").glob("*.md"))]
SCRIPTS = sorted((ROOT / "playground" / "ui").rglob("*.js"))
STRING = re.compile(r"`[^`]*`|\"[^\"\n]*\"")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_a_preset_names_no_colour(preset) -> None:
    assert not COLOURS.search(preset.point)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_documentation_names_no_colour(path: Path) -> None:
    assert not COLOURS.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_texts_of_a_script_name_no_colour(path: Path) -> None:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    texts = [text for text in STRING.findall(code) if " " in text]
    assert not [text for text in texts if COLOURS.search(text)]
