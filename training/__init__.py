"""Trains the weights in ``models/``: drafters are distilled from texts that the model writes."""
