"""Figures that compare any strategies."""
