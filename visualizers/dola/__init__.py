"""Figures of DoLa."""
