"""What the figures share: style, labels of runs, lines along the tokens, stacked panels."""
