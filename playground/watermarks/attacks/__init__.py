"""Attacks that try to remove a watermark from a text."""
