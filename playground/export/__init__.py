"""Exports of a run: Python code, a custom_generate recipe, and an HTML report."""
