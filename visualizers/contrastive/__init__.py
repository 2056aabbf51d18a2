"""Figures of contrastive search."""
