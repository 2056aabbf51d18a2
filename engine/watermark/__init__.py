"""Watermarks: their settings, detection and statistics."""
