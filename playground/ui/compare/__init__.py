"""The compare page: strategies side by side, live columns, and tabs that explain the runs."""
