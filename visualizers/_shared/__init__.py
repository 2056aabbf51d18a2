"""What all figures share: style, panels, lines and token spellings."""
