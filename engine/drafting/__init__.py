"""Drafting for speculative decoding: models, heads, exits, trees, other tokenizers."""
