"""Figures of watermarks and their detection."""
