"""Figures of beam searches."""
