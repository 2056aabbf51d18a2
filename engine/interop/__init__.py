"""Our strategies inside plain transformers, and foreign decoding code inside our engine."""
