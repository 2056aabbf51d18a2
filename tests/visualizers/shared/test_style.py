"""How figures write tokens, texts and probabilities."""

import pytest

import visualizers
from visualizers.shared import style


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" the", "␣the"), ("\n\t", "⏎⇥"), ("\u00a0", "⍽"), ("\u202e", "\\u202e"), ("é🙂", "é🙂")],
)
def test_spaces_and_non_printing_characters_are_made_visible(text, shown):
    assert visualizers.visible(text) == shown


def test_text_for_plotly_is_neither_html_nor_tex():
    assert style.escape("<b>&$x$") == "&lt;b&gt;&amp;&#36;x&#36;"
    assert style.token_label("a" * 50, 10) == "a" * 9 + "…"


def test_very_small_probabilities_are_written_in_scientific_notation():
    assert [style.percent(p) for p in (0, 0.5, 0.001, 0.00012, None)] == [
        "0.0%",
        "50.0%",
        "0.1%",
        "1.2e-04",
        "not captured",
    ]


def test_runs_differ_in_symbol_and_in_colour():
    marks = [style.run_mark(number) for number in range(6)]
    assert len({mark.symbol for mark in marks}) == len({mark.colour for mark in marks}) == 6
    assert style.run_mark(6) == marks[0]


def test_long_names_are_wrapped_between_words_and_shortened():
    assert style.wrapped("sample · repetition_penalty=1.3", 16, 4).split("<br>") == [
        "sample ·",
        "repetition_",
        "penalty=1.3",
    ]
    assert style.wrapped("<b> " * 30, 12, 2) == "&lt;b&gt; &lt;b&gt; &lt;b&gt;<br>" + (
        "&lt;b&gt; &lt;b&gt; &lt;b&gt;…"
    )


def test_a_long_subtitle_is_wrapped_between_its_parts():
    parts = ["dashed: p = q", "thin lines: to the p that the draw required", "filled: accepted"]
    figure = style.complete(style.empty_figure(" · ".join(parts), "x", "y"), "Title")
    assert figure.layout.title.subtitle.text.split("<br>") == parts
    short = style.complete(style.empty_figure("a · b", "x", "y"), "Title")
    assert short.layout.title.subtitle.text == "a · b"
